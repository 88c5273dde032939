#include "cli/statistics/error_flow.h"

#include <algorithm>
#include <cmath>

namespace rekindle::cli {
namespace {

// An optimizer with a momentum of 0.9 makes a step of an error for some ten steps, all in one direction: they
// walk sqrt((1 + 0.9) / (1 - 0.9)) times as far as independent ones.
constexpr double kMomentum = 4.4;

double per(double value, double size) { return value > 0 && size > 0 ? value / size : 0; }

// NaNs, of a parameter without finite elements, are passed over.
double change(const Statistics& before, const Statistics& after) {
  double most = 0;
  for (const double one : {after.min - before.min, after.max - before.max, after.mean - before.mean,
                           after.rms() - before.rms()}) {
    most = std::fmax(most, std::abs(one));
  }
  return most;
}

}  // namespace

std::string module_of(const Tensor& tensor) {
  if (tensor.key.phase != Phase::kParameter && tensor.key.phase != Phase::kGradient) return "-";
  const std::size_t end = tensor.key.name.rfind('.');
  return end == std::string::npos ? "" : tensor.key.name.substr(0, end);
}

void ErrorFlow::Errors::include(const Errors& other) {
  means = std::max(means, other.means);
  elements = std::max(elements, other.elements);
}

Comparison ErrorFlow::compare_next(const Tensor& a, const Tensor& b) {
  if (a.key.step != step_) begin_step(a.key.step);
  error_ = std::max({error_, error_of(a.dtype), error_of(b.dtype)});
  const Rounding rounding = rounding_for(a, b);
  Comparison found = compare(a, b, rounding);
  keep(a, b, rounding, found);
  return found;
}

void ErrorFlow::begin_step(std::int64_t step) {
  step_ = step;
  operators_ = 0;
  activations_ = {};
  modules_.clear();
  gradients_.clear();
}

Rounding ErrorFlow::rounding_for(const Tensor& a, const Tensor& b) {
  Rounding rounding{.tolerance = tolerance_, .error = error_, .operators = operators_};
  if (a.key.phase != Phase::kParameter) {
    Errors fed = activations_;
    fed.include(errors_of_parameters(a));
    rounding.fed_means = fed.means;
    rounding.fed_elements = fed.elements;
  }
  if (a.key.phase == Phase::kParameter) add_parameter(a, b, rounding);
  if (a.key.phase == Phase::kGradient) rounding.floor = cancelled(a) * rounding.of_elements();
  return rounding;
}

void ErrorFlow::add_parameter(const Tensor& a, const Tensor& b, Rounding& rounding) {
  const auto found = parameters_.find(a.key.name);
  if (found == parameters_.end()) return;
  Parameter& parameter = found->second;
  rounding.fed_means = std::max(parameter.own.means, parameter.gradient.means);
  rounding.fed_elements = std::max(parameter.own.elements, parameter.gradient.elements);
  const double step = 2 * std::max(change(parameter.a, a.values), change(parameter.b, b.values));
  const double again = parameter.moved > 0 ? kMomentum : 1;
  parameter.moved = std::hypot(parameter.moved, again * step * std::sqrt(parameter.undecided.squares));
  parameter.moved_worst = std::hypot(parameter.moved_worst, again * step * parameter.undecided.worst);
  parameter.undecided = {};
  // Elements move independently of each other, so that most of it averages out; of their squares nothing
  // does.
  const double count = double(std::max<std::uint64_t>(a.values.count, 1));
  const double size = std::max(a.values.rms(), b.values.rms());
  rounding.moved_means =
      4 * parameter.moved / std::sqrt(count) + per(parameter.moved * parameter.moved, size);
  rounding.moved_elements = parameter.moved_worst;
}

// What sums to a bias's gradient element, if its terms cancelled: the root of the sum of their squares.
double ErrorFlow::cancelled(const Tensor& gradient) const {
  const auto found = gradients_.find(module_of(gradient));
  if (gradient.shape.size() != 1 || found == gradients_.end() || gradient.values.count == 0) return 0;
  const double rows = double(found->second.count) / double(gradient.values.count);
  return found->second.rms() * std::sqrt(std::max(rows, 1.0));
}

void ErrorFlow::keep(const Tensor& a, const Tensor& b, const Rounding& rounding, const Comparison& found) {
  const Errors errors{found.means, found.elements};
  switch (a.key.phase) {
    case Phase::kForward:
    case Phase::kBackward:
      operators_ += 1;
      activations_.include(errors);
      activations_.include(errors_of_parameters(a));
      if (a.key.phase == Phase::kBackward && a.key.output == 0) gradients_[a.key.name] = a.values;
      return;
    case Phase::kParameter:
      keep_parameter(a, b, rounding, errors);
      return;
    case Phase::kGradient: {
      Parameter& parameter = parameters_[a.key.name];
      parameter.gradient = errors;
      parameter.undecided = undecided(a.values, rounding.typical(a));
      return;
    }
  }
}

void ErrorFlow::keep_parameter(const Tensor& a, const Tensor& b, const Rounding& rounding,
                               const Errors& errors) {
  Parameter& parameter = parameters_[a.key.name];
  parameter.a = a.values;
  parameter.b = b.values;
  parameter.own = errors;
  // What moved by chance shows in few of the parameter's statistics, but in what is computed of it.
  const double size = std::max(a.values.rms(), b.values.rms());
  Errors absolute = {errors.means * size, errors.elements * std::max(a.values.largest(), b.values.largest())};
  absolute.include({rounding.moved_means, parameter.moved});
  Module& module = modules_[module_of(a)];
  if (a.shape.size() < 2) {
    module.added.include(absolute);
  } else {
    module.multiplied.include({per(absolute.means, size), per(absolute.elements, size)});
  }
}

ErrorFlow::Errors ErrorFlow::errors_of_parameters(const Tensor& output) const {
  const auto found = modules_.find(output.key.name);
  if (output.key.phase != Phase::kForward || found == modules_.end()) return {};
  const Errors& added = found->second.added;
  Errors errors = found->second.multiplied;
  errors.include({per(added.means, output.values.rms()), per(added.elements, output.values.largest())});
  return errors;
}

}  // namespace rekindle::cli
