// What the lanes of a warp can do together; shared by kernels and the runtime.
#pragma once

namespace cuda_on_host {

enum class Collective : int {
  kSync,
  kShuffle,
  kBallot,
  kMatch,
  kAdd,
  kMin,
  kMax,
  kAnd,
  kOr,
  kXor,
  kSignedMin,
  kSignedMax,
};

}  // namespace cuda_on_host
