// How far the statistics of a tensor may differ between two runs that compute the same, in another order or
// by other kernels. An example: two float32 outputs of 64 x 512 elements, the first tensors of a step, may
// differ in their norm by 2e-7 of it, and in their largest element by 1e-6.
//
// The model. Every operator rounds, so that an element is wrong by a few units of the dtype's precision,
// times the size of the tensor's elements. Errors of operators are independent: after n of them they are
// sqrt(n) times larger. In a mean over a tensor the errors of different rows average out; those within a row,
// of a common scale say, do not, and a small part is common to all. What is fed to a tensor with a difference
// may leave it with one that is 4 times larger.
#pragma once

#include <string>
#include <vector>

#include "cli/statistics/records.h"

namespace rekindle::cli {

// Says how large an error of the next tensor rounding explains. Errors are relative, unless marked absolute:
// those of means, norms and deviations to the root mean square, those of single elements to the largest
// element.
struct Rounding {
  double tolerance = 1;     // of the user's
  double error = 0;         // of one operator, in the coarsest dtype so far
  double operators = 0;     // how many rounded before, in this step
  double fed_means = 0;     // the most that the means of what feeds the tensor differ
  double fed_elements = 0;  // the same for single elements
  double floor = 0;         // absolute: an element's error where a sum cancels
  double moved_means = 0;   // absolute: what the optimizer may have made of a gradient's error
  double moved_elements = 0;

  double of_operators() const;
  double of_means(const Tensor& tensor) const;
  double of_elements() const;
  // The root mean square error of one element.
  double typical(const Tensor& tensor) const;
};

// The relative error of one operator; 0 for integers. That of float32 for a dtype that is not known.
double error_of(const std::string& dtype);
bool is_integer(const std::string& dtype);

// One statistic in both runs. NaN stands for none.
struct Compared {
  const char* statistic = "";
  double a = 0, b = 0;
  double difference = 0, allowed = 0;

  bool exceeds() const { return difference > 0 && !(difference <= allowed); }
};

struct Comparison {
  std::vector<Compared> statistics;
  double means = 0, elements = 0;  // relative differences, for what the tensor feeds

  bool exceeds() const;
  // The largest difference over what is allowed; 0 where nothing differs.
  double worst() const;
};

Comparison compare(const Tensor& a, const Tensor& b, const Rounding& rounding);

// The share of elements that are no larger than `bound`, each in full, and of larger ones as bound / |x|;
// then that of squares. It is by how much an update that is divided by the gradient's size goes wrong.
struct Undecided {
  double means = 0, squares = 0, worst = 0;
};
Undecided undecided(const Statistics& gradient, double bound);

}  // namespace rekindle::cli
