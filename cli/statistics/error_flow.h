// Follows the errors of two runs from tensor to tensor, so that what is compared next is allowed what came
// before.
#pragma once

#include <map>
#include <string>

#include "cli/statistics/records.h"
#include "cli/statistics/rounding.h"

namespace rekindle::cli {

// The path of the module that a parameter, or its gradient, belongs to; "-" for other tensors.
std::string module_of(const Tensor& tensor);

// Takes the pairs of two runs in the order of execution. What flows:
// - dtypes: a tensor has the error of the coarsest dtype that was computed before it;
// - operators: each activation before it in the step has added an independent error;
// - differences, within a step: the largest of the activations before it, and of the module's own parameters;
// - into a bias's gradient, a sum over rows: the error of its terms, which stays where they cancel;
// - into a parameter: the difference of its gradient, and its own of the step before. Elements of a gradient
//   may be no larger than their errors, as those of a bias before a normalization are. An optimizer that
//   divides by the gradient's size makes whole steps of these errors. How large a step is, the change of the
//   parameter's extremes tells.
class ErrorFlow {
 public:
  explicit ErrorFlow(double tolerance) : tolerance_(tolerance) {}

  Comparison compare_next(const Tensor& a, const Tensor& b);

 private:
  struct Errors {
    double means = 0, elements = 0;

    void include(const Errors& other);
  };
  // A parameter's last values, what its latest gradient may do to the next ones, and what gradients have
  // done: the absolute error of an element, its root mean square and the most.
  struct Parameter {
    Statistics a, b;
    Errors own, gradient;
    Undecided undecided;
    double moved = 0, moved_worst = 0;
  };
  // The errors that a module's parameters bring into its output. `added` are absolute, of biases and scales;
  // `multiplied` are relative, of matrices.
  struct Module {
    Errors added, multiplied;
  };

  void begin_step(std::int64_t step);
  Rounding rounding_for(const Tensor& a, const Tensor& b);
  void add_parameter(const Tensor& a, const Tensor& b, Rounding& rounding);
  void keep(const Tensor& a, const Tensor& b, const Rounding& rounding, const Comparison& found);
  void keep_parameter(const Tensor& a, const Tensor& b, const Rounding& rounding, const Errors& errors);
  Errors errors_of_parameters(const Tensor& output) const;
  double cancelled(const Tensor& gradient) const;

  const double tolerance_;
  double error_ = 0, operators_ = 0;
  std::int64_t step_ = -1;
  Errors activations_;                           // of this step
  std::map<std::string, Module> modules_;        // in this step
  std::map<std::string, Statistics> gradients_;  // of each module's output, in this step
  std::map<std::string, Parameter> parameters_;
};

}  // namespace rekindle::cli
