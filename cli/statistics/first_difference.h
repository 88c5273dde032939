// Walks two runs side by side, in the order of execution, to the first tensor in which they differ by more
// than rounding explains (cli/statistics/rounding.h).
//
//   const Divergence found = first_difference(a, b, /*tolerance=*/1);
//   if (found.first) ...  // found.first->a is the tensor in the one run
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/statistics/records.h"
#include "cli/statistics/rounding.h"

namespace rekindle::cli {

// The same tensor of both runs, which outlive this.
struct Pair {
  const Tensor* a = nullptr;
  const Tensor* b = nullptr;
  Comparison comparison;
};

struct Divergence {
  std::optional<Pair> first;
  bool is_shape = false;     // the first differs in its sizes, and nothing else was compared
  std::vector<Pair> fed_by;  // what agrees and leads to the first, in order; it comes last
  std::size_t compared = 0;  // pairs, the first included
  double worst = 0;          // of those that agree: the largest difference over what is allowed
  std::vector<const Tensor*> only_a, only_b;  // of steps up to that of the first that both runs have
  std::vector<std::string> notes;             // what else the reader should know
};

// tolerance: multiplies what rounding explains
Divergence first_difference(const Run& a, const Run& b, double tolerance);

}  // namespace rekindle::cli
