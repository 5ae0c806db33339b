// Sizes of transposes that follow from shapes and strides by loops, which no tree of decisions holds: the functions of
// gen/families/transpose that have these names, in C++. A test compares both.

#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

namespace {

struct MovedAxis { Int extent, in_stride, out_stride; };  // strides in elements

struct MovedAxes {
  int count = 0;
  MovedAxis axis[kMostAxes];
};

Int rounded_up_quotient(Int one, Int other) { return (one + other - 1) / other; }

// The axes longer than 1, slowest in the input first, every two that are one long axis in both arrays merged. `numbers`
// are extents, strides of the input, strides of the output.
MovedAxes merged_axes(const Int* numbers, int axes) {
  MovedAxes found;
  for (int place = 0; place < axes; ++place) {
    const MovedAxis one = {numbers[place], numbers[axes + place], numbers[2 * axes + place]};
    if (one.extent == 1) continue;
    MovedAxis* last = found.count > 0 ? &found.axis[found.count - 1] : nullptr;
    if (last != nullptr && last->in_stride == one.extent * one.in_stride &&
        last->out_stride == one.extent * one.out_stride)
      *last = {last->extent * one.extent, one.in_stride, one.out_stride};
    else
      found.axis[found.count++] = one;
  }
  return found;
}

bool has_none(const Int* extents, int axes) {
  return std::find(extents, extents + axes, 0) != extents + axes;
}

// A permutation as a batch of matrices: rows, columns, both pitches, then extent and strides of each further axis.
// `given`: how many axes are told, then extents, strides of the input, strides of the output.
[[maybe_unused]] void canonical_sizes(const Int* given, int count, Int* found) {
  const int batches = static_cast<int>(given[0]), axes = (count - 1) / 3;
  for (int place = 0; place < batches; ++place) {
    Int* told = found + 4 + 3 * place;
    told[0] = 1, told[1] = told[2] = 0;
  }
  found[0] = found[1] = found[2] = found[3] = 0;
  if (has_none(given + 1, axes)) return;
  const MovedAxes all = merged_axes(given + 1, axes);
  const MovedAxis *row = nullptr, *col = nullptr, *batch[kMostAxes];
  for (int place = 0; place < all.count; ++place) {
    if (col == nullptr && all.axis[place].in_stride == 1) col = &all.axis[place];
    if (row == nullptr && all.axis[place].out_stride == 1) row = &all.axis[place];
  }
  int others = 0;
  for (int place = 0; place < all.count; ++place)
    if (&all.axis[place] != col && &all.axis[place] != row) batch[others++] = &all.axis[place];
  std::stable_sort(batch, batch + others,
                   [](const MovedAxis* a, const MovedAxis* b) { return a->out_stride > b->out_stride; });
  if (row == col) row = nullptr;
  found[0] = row != nullptr ? row->extent : 1;
  found[1] = col != nullptr ? col->extent : 1;
  found[2] = row != nullptr ? row->in_stride : found[1];
  found[3] = col != nullptr ? col->out_stride : found[0];
  for (int place = 0; place < others; ++place) {
    Int* told = found + 4 + 3 * (batches - others + place);
    told[0] = batch[place]->extent, told[1] = batch[place]->in_stride, told[2] = batch[place]->out_stride;
  }
}

constexpr Int kFilledUnits = 2048, kFilledBytes = 16384, kWordBytes = 4, kManyParts = 12;
constexpr Int kWideWords = 4096, kTileWords = 4352, kColumns = 1024, kMostRows = 8191, kLeastRows = 16, kLanes = 32;
constexpr int kRunCount = 7 + 11 * 8;

// Lengths of runs that are tried: 1 to 7, then eighths of powers of two.
Int run_length(int place) { return place < 7 ? place + 1 : Int(8 + (place - 7) % 8) << (place - 7) / 8; }

struct Box {
  const MovedAxes& axes;
  Int element;
  Int places[kMostAxes];
  bool shifted = false;  // whether shift_box moves it, and not packed

  Int grain() const { return most(kWordBytes / element, Int(1)); }
  Int grain_along(int axis) const {
    return least(axes.axis[axis].in_stride, axes.axis[axis].out_stride) == 1 ? grain() : 1;
  }
  Int stride(int axis, bool input) const { return input ? axes.axis[axis].in_stride : axes.axis[axis].out_stride; }

  // Elements that follow each other in one of the arrays.
  Int run(bool input) const {
    int order[kMostAxes];
    for (int axis = 0; axis < axes.count; ++axis) order[axis] = axis;
    std::stable_sort(order, order + axes.count, [&](int a, int b) {
      return stride(a, input) != stride(b, input) ? stride(a, input) < stride(b, input) : places[a] < places[b];
    });
    Int found = 1;
    for (int at = 0; at < axes.count; ++at) {
      if (places[order[at]] <= 1) continue;
      if (stride(order[at], input) != found) break;
      found *= places[order[at]];
    }
    return found;
  }
  // Whether all runs are of whole words, and begin at some if the box does.
  bool is_whole(bool input, Int run) const {
    if (run % grain() != 0) return false;
    for (int axis = 0; axis < axes.count; ++axis)
      if (places[axis] > 1 && stride(axis, input) >= run && stride(axis, input) % grain() != 0) return false;
    return true;
  }
  // Whether all runs of the output are of whole words, and boxes begin at some if the array does.
  bool is_exact(Int run) const {
    if (grain() == 1) return true;
    if (!is_whole(false, run)) return false;
    for (int axis = 0; axis < axes.count; ++axis) {
      const Int left = axes.axis[axis].extent - places[axis], step = axes.axis[axis].out_stride;
      if (left > 0 && (places[axis] * step % grain() != 0 || left * step % grain() != 0)) return false;
    }
    return true;
  }
  Int elements() const {
    Int found = 1;
    for (int axis = 0; axis < axes.count; ++axis) found *= places[axis];
    return found;
  }
  // How full it is, in squares, in words of its tile, in columns and in rows; above 1 it is too large.
  double filled_by_squares() const {
    const Int length = run(true), columns = elements() / places[0];
    const MovedAxis& down = axes.axis[0];
    if (places[0] == 1 || down.in_stride < length || down.in_stride == 1 || down.out_stride > 1) return HUGE_VAL;
    const Int groups = rounded_up_quotient(places[0], grain());
    const Int squares = groups * (columns / length) * rounded_up_quotient(length + grain() - 1, grain());
    const Int words = columns / grain() * (grain() * groups + 1) + columns % grain() * groups;
    const Int at_once = kWideWords * element / kWordBytes / kLanes * (kLanes - 1);
    return most(most(double(squares) / double(at_once), double(words) / double(kTileWords)),
                most(double(columns) / double(kColumns), double(places[0]) / double(kMostRows)));
  }
  // How full it is, in units of threads and in bytes, or as shift_box has it; above 1 it is too large.
  double filled() const {
    if (shifted) return filled_by_squares();
    const Int read = run(true), written = run(false), lacks = is_exact(written) ? 0 : grain() - 1;
    const Int units = most(elements() / read * rounded_up_quotient(read, grain()),
                           elements() / written * rounded_up_quotient(written + lacks, grain()));
    return most(double(units) / double(kFilledUnits), double(elements() * element) / double(kFilledBytes));
  }
};

// How long parts of an axis are, of whole words, so that the last one lies in the one before by least.
Int even_part(Int extent, Int longest, Int grain) {
  const Int many = rounded_up_quotient(extent, longest);
  const Int fewest = many > kManyParts ? many : rounded_up_quotient(3 * extent, 4 * longest);
  const Int last = least(rounded_up_quotient(4 * extent, 3 * longest), many + kManyParts);
  Int found = longest, waste = extent;
  for (Int parts = fewest; parts <= last; ++parts) {
    const Int places = least(rounded_up_quotient(rounded_up_quotient(extent, parts), grain) * grain, extent);
    const Int over = rounded_up_quotient(extent, places) * places - extent;
    if (over < waste && 4 * places >= 3 * longest) found = places, waste = over;
    if (50 * waste <= extent) break;
  }
  return found;
}

// A box whose runs have so many elements in both arrays, or all there are.
Box box_of_runs(const MovedAxes& axes, Int element, Int run, bool shifted) {
  Box box{axes, element, {}, shifted};
  for (int axis = 0; axis < axes.count; ++axis) {
    const Int grain = box.grain_along(axis), extent = most(axes.axis[axis].extent, Int(1));
    Int needed = 1;
    for (const bool input : {true, false}) {
      const Int places = (run - 1) / most(box.stride(axis, input), Int(1)) + (grain == 1);
      needed = most(needed, rounded_up_quotient(places, grain) * grain);
    }
    box.places[axis] = even_part(extent, extent < 2 * needed ? extent : needed, grain);
  }
  return box;
}

// The box with the longest runs that threads and shared memory allow, then longer along the nearest axes.
Box longest_box(const MovedAxes& axes, Int element, bool shifted) {
  const auto is_full = [&](int place) { return box_of_runs(axes, element, run_length(place), shifted).filled() > 1; };
  int low = 0, high = kRunCount;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (is_full(middle)) high = middle;
    else low = middle + 1;
  }
  while (low > 1 && is_full(low - 1)) --low;
  Box box = box_of_runs(axes, element, run_length(low > 0 ? low - 1 : 0), shifted);
  int order[kMostAxes];
  for (int axis = 0; axis < axes.count; ++axis) order[axis] = axis;
  const auto nearest = [&](int axis) { return least(axes.axis[axis].in_stride, axes.axis[axis].out_stride); };
  std::stable_sort(order, order + axes.count, [&](int a, int b) { return nearest(a) < nearest(b); });
  for (int at = 0; at < axes.count; ++at) {
    const int axis = order[at];
    const Int now = box.places[axis];
    const Int wanted = least(static_cast<Int>(double(now) / box.filled()), axes.axis[axis].extent);
    if (wanted <= now) continue;
    box.places[axis] = even_part(axes.axis[axis].extent, wanted, box.grain_along(axis));
    if (box.places[axis] <= now || box.filled() > 1) box.places[axis] = now;
  }
  return box;
}

// The axes that are longer than 1, the output's fastest first; always one.
MovedAxes axes_in_output(const Int* numbers, int told) {
  MovedAxes axes = merged_axes(numbers, told);
  if (has_none(numbers, told)) axes.count = 1, axes.axis[0] = {0, 1, 1};
  if (axes.count == 0) axes.count = 1, axes.axis[0] = {1, 1, 1};
  std::stable_sort(axes.axis, axes.axis + axes.count,
                   [](const MovedAxis& a, const MovedAxis& b) { return a.out_stride < b.out_stride; });
  return axes;
}

// The axes of a box in the order of the input.
void order_of_input(const MovedAxes& axes, int* order) {
  for (int axis = 0; axis < axes.count; ++axis) order[axis] = axis;
  std::stable_sort(order, order + axes.count,
                   [&](int a, int b) { return axes.axis[a].in_stride < axes.axis[b].in_stride; });
}

// The boxes of `packed`: how many axes, runs, whether they are whole, then seven numbers an axis. `given`: the bytes of
// an element, then extents, strides of the input, strides of the output.
[[maybe_unused]] void box_sizes(const Int* given, int count, Int* found) {
  const int told = (count - 1) / 3;
  const MovedAxes axes = axes_in_output(given + 1, told);
  const Box box = longest_box(axes, given[0], false);
  const Int read = box.run(true), written = box.run(false);
  Int* at = found;
  for (const Int one : {Int(axes.count), read, written, Int(box.is_whole(true, read)), Int(box.is_exact(written))})
    *at++ = one;
  Int steps[kMostAxes], step = 1;
  int order[kMostAxes];
  order_of_input(axes, order);
  for (int axis = 0; axis < axes.count; ++axis) {
    steps[axis] = step;
    step *= box.places[axis];
  }
  for (int axis = 0; axis < told; ++axis) {
    const bool there = axis < axes.count;
    const MovedAxis own = there ? axes.axis[axis] : MovedAxis{1, 0, 0};
    const int other = there ? order[axis] : 0;
    for (const Int one : {own.extent, own.in_stride, own.out_stride, there ? box.places[axis] : 1,
                          there ? box.places[other] : 1, there ? axes.axis[other].in_stride : 0,
                          there ? steps[other] : 0})
      *at++ = one;
  }
}

// The boxes of `shift_box`: the run of the input, or 0 for none, then four numbers an axis. `given`: as above.
[[maybe_unused]] void wide_sizes(const Int* given, int count, Int* found) {
  const int told = (count - 1) / 3;
  const MovedAxes axes = axes_in_output(given + 1, told);
  const Box packed = longest_box(axes, given[0], false);
  Box box = longest_box(axes, given[0], true);
  Int run = box.run(true);
  const Int worse = least(packed.run(true), packed.run(false));
  if (box.filled() > 1 || box.places[0] < kLeastRows || least(run, box.places[0]) < worse) {
    run = 0;
    for (int axis = 0; axis < axes.count; ++axis) box.places[axis] = 1;
  }
  Int steps[kMostAxes], step = 1, columns[kMostAxes] = {}, column = 1;
  int order[kMostAxes];
  order_of_input(axes, order);
  for (int axis = 0; axis < axes.count; ++axis) {
    steps[axis] = step;
    step *= box.places[axis];
  }
  for (int at = 0; at < axes.count; ++at) {
    if (order[at] == 0) continue;
    columns[order[at]] = column;
    column *= box.places[order[at]];
  }
  *found++ = run;
  for (int axis = 0; axis < told; ++axis) {
    const bool there = axis < axes.count;
    for (const Int one : {there ? box.places[axis] : 1, there ? columns[axis] : 0,
                          there ? box.places[order[axis]] : 1, there ? steps[order[axis]] : 0})
      *found++ = one;
  }
}

// The groups of axes of `grouped_tile`: axes of rows, of columns, and all; rows, columns, places of the others; what
// divides the extents of the fastest axes and all strides but 1; then three numbers an axis, those of rows first. All 0
// where there are no two groups. `given`: extents, strides of the input, strides of the output.
[[maybe_unused]] void group_sizes(const Int* given, int count, Int* found) {
  constexpr Int kWidest = 16;  // elements of a vector at most
  const int told = count / 3;
  const MovedAxes axes = axes_in_output(given, told);
  std::fill(found, found + 7 + 3 * told, 0);
  int by_input[kMostAxes];
  order_of_input(axes, by_input);
  if (by_input[0] == 0) return;
  enum Group { kOthers, kRows, kCols } group[kMostAxes] = {};
  int row_axes = 1, col_axes = 1;
  Int rows = axes.axis[0].extent, cols = axes.axis[by_input[0]].extent, others = 1;
  group[0] = kRows;
  group[by_input[0]] = kCols;
  while (true) {
    const bool more_rows = row_axes < axes.count && group[row_axes] != kCols;
    const bool more_cols = col_axes < axes.count && group[by_input[col_axes]] != kRows;
    if (!more_rows && !more_cols) break;
    if (more_rows && (!more_cols || rows <= cols)) {
      group[row_axes] = kRows;
      rows *= axes.axis[row_axes++].extent;
    } else {
      group[by_input[col_axes]] = kCols;
      cols *= axes.axis[by_input[col_axes++]].extent;
    }
  }
  Int grain = std::gcd(kWidest, std::gcd(axes.axis[0].extent, axes.axis[by_input[0]].extent));
  for (int axis = 0; axis < axes.count; ++axis) {
    if (group[axis] == kOthers) others *= axes.axis[axis].extent;
    if (axis != by_input[0]) grain = std::gcd(grain, axes.axis[axis].in_stride);
    if (axis != 0) grain = std::gcd(grain, axes.axis[axis].out_stride);
  }
  if (axes.axis[by_input[0]].in_stride != 1 || axes.axis[0].out_stride != 1) grain = 1;  // elements have gaps
  for (const Int one : {Int(row_axes), Int(col_axes), Int(axes.count), rows, cols, others, grain}) *found++ = one;
  const auto tell = [&](int axis) {
    *found++ = axes.axis[axis].extent, *found++ = axes.axis[axis].in_stride, *found++ = axes.axis[axis].out_stride;
  };
  for (int axis = 0; axis < row_axes; ++axis) tell(axis);
  for (int place = 0; place < col_axes; ++place) tell(by_input[place]);
  for (int axis = 0; axis < axes.count; ++axis)
    if (group[axis] == kOthers) tell(axis);
  for (int place = axes.count; place < told; ++place) *found = 1, found += 3;
}

}  // namespace
