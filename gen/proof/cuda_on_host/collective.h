// What the lanes of a warp can do together, told apart as PTX does by the qualifiers of its instructions: lanes wait
// for those that come to the same. Shared by kernels and the runtime.
#pragma once

namespace cuda_on_host {

enum class Collective : unsigned char {
  kSync,
  kShuffle,
  kShuffleUp,
  kShuffleDown,
  kShuffleXor,
  kBallot,
  kAny,
  kAll,
  kMatchAny,
  kMatchAll,
  kAdd,
  kMin,
  kMax,
  kAnd,
  kOr,
  kXor,
  kSignedAdd,
  kSignedMin,
  kSignedMax,
};

}  // namespace cuda_on_host
