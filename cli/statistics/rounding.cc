#include "cli/statistics/rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace rekindle::cli {
namespace {

constexpr double kElement = 2;      // errors of one operator by which the element that it hits worst is moved
constexpr double kCommon = 0.25;    // the part of an error that all rows share
constexpr double kGrowth = 4;       // by which one operator may enlarge the error of what it is given
constexpr double kRerouted = 1e-3;  // error from which on a gradient may have gone to another element
constexpr double kFlipped = 1e-4;   // how improbable a number of elements on the other side of zero has to be

// Relative errors of one operator. Sums of float32 and float64 round at each term: 4 units. What is narrower
// is summed in float32 and rounded once: half a unit.
const std::map<std::string, double> kErrors = {
    {"float64", 0x1p-50},        {"complex128", 0x1p-50},    {"float32", 0x1p-21},
    {"complex64", 0x1p-21},      {"bfloat16", 0x1p-8},       {"float16", 0x1p-11},
    {"complex32", 0x1p-11},      {"float8_e4m3fn", 0x1p-4},  {"float8_e5m2", 0x1p-3},
    {"float8_e4m3fnuz", 0x1p-4}, {"float8_e5m2fnuz", 0x1p-3}};

// Elements whose errors are independent of each other's: rows, as the last dimension may share a scale.
double rows_of(const Tensor& tensor) {
  const double last = tensor.shape.empty() ? 1 : double(std::max<std::int64_t>(tensor.shape.back(), 1));
  return std::max(1.0, double(tensor.values.count) / last);
}

// How many of `expected` rare events there may be before that is no chance.
double most_events(double expected) {
  if (expected > 100) return expected + 4 * std::sqrt(expected);
  double probability = std::exp(-expected), left = 1 - probability, events = 0;
  while (left > kFlipped && events < 200) {
    events += 1;
    probability *= expected / events;
    left -= probability;
  }
  return events;
}

// Elements that rounding may have made zero, or zero of: those smaller than the error of one.
double small_elements(const Statistics& values, double bound) {
  double found = double(values.zeros);
  for (const Bin& bin : values.histogram) {
    if (std::ldexp(1.0, bin.power) <= 2 * bound) found += double(bin.negative + bin.positive);
  }
  return found;
}

double zeros_too_many(const Statistics& a, const Statistics& b, double bound) {
  return std::max(
      {double(a.zeros) - small_elements(b, bound), double(b.zeros) - small_elements(a, bound), 0.0});
}

double apart(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double difference = std::abs(a - b);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

double ratio(double difference, double size) { return difference == 0 ? 0 : difference / size; }

// In a gradient the largest element may be another one: where a comparison of the forward, as a ReLU's or a
// maximum's, went the other way, an element's gradient is gone. That is as probable as errors are large.
double of_extremes(Phase phase, const Rounding& rounding) {
  const double errors = rounding.of_elements();
  const bool is_gradient = phase == Phase::kBackward || phase == Phase::kGradient;
  return is_gradient && errors > kRerouted ? std::max(errors, 0.5) : errors;
}

// Counts of what is not finite: a few elements may be on either side of an overflow, but not all of them.
Compared compared_counts(const char* name, std::uint64_t a, std::uint64_t b, double flips) {
  const bool is_new = (a == 0) != (b == 0);
  return {name, double(a), double(b), apart(double(a), double(b)), is_new ? 0 : flips};
}

void compare_integers(const Tensor& a, const Tensor& b, double flips, Comparison& found) {
  const double range = std::max(a.values.max, b.values.max) - std::min(a.values.min, b.values.min);
  const double largest = std::max(a.values.largest(), b.values.largest());
  const double count = double(std::max<std::uint64_t>(a.values.count, 1));
  const double extreme = flips > 0 ? range : 0;
  for (Compared& one : found.statistics) {
    const std::string name = one.statistic;
    if (name == "norm") one.allowed = std::sqrt(flips) * largest;
    if (name == "mean") one.allowed = flips / count * range + 1e-12 * largest;
    if (name == "std") one.allowed = std::sqrt(flips / count) * range + 1e-12 * largest;
    if (name == "min" || name == "max") one.allowed = extreme;
  }
}

void note_errors(const Tensor& a, const Tensor& b, Comparison& found) {
  const double rms = std::max(a.values.rms(), b.values.rms());
  const double largest = std::max(a.values.largest(), b.values.largest());
  for (const Compared& one : found.statistics) {
    const std::string name = one.statistic;
    const double count = std::sqrt(double(std::max<std::uint64_t>(a.values.finite(), 1)));
    if (name == "norm") found.means = std::max(found.means, ratio(one.difference, rms * count));
    if (name == "mean" || name == "std") found.means = std::max(found.means, ratio(one.difference, rms));
    if (name == "min" || name == "max")
      found.elements = std::max(found.elements, ratio(one.difference, largest));
  }
}

}  // namespace

double error_of(const std::string& dtype) {
  if (is_integer(dtype)) return 0;
  const auto found = kErrors.find(dtype);
  return found == kErrors.end() ? kErrors.at("float32") : found->second;
}

bool is_integer(const std::string& dtype) {
  return dtype == "bool" || dtype.starts_with("int") || dtype.starts_with("uint");
}

double Rounding::of_operators() const { return tolerance * error * std::sqrt(1 + operators); }

double Rounding::of_means(const Tensor& tensor) const {
  return of_operators() * (kCommon + kElement / std::sqrt(rows_of(tensor))) + kGrowth * fed_means;
}

double Rounding::of_elements() const { return kElement * of_operators() + kGrowth * fed_elements; }

double Rounding::typical(const Tensor& tensor) const {
  return kElement * of_operators() * tensor.values.rms() + floor;
}

bool Comparison::exceeds() const { return std::ranges::any_of(statistics, &Compared::exceeds); }

double Comparison::worst() const {
  double worst = 0;
  for (const Compared& one : statistics) worst = std::max(worst, ratio(one.difference, one.allowed));
  return worst;
}

Comparison compare(const Tensor& a, const Tensor& b, const Rounding& rounding) {
  const Statistics &one = a.values, &other = b.values;
  const double rms = std::max(one.rms(), other.rms()), largest = std::max(one.largest(), other.largest());
  const double count = std::sqrt(double(std::max(one.finite(), other.finite())));
  const double means = rounding.of_means(a) * rms + rounding.floor + rounding.moved_means;
  const double elements =
      of_extremes(a.key.phase, rounding) * largest + 2 * rounding.floor + rounding.moved_elements;
  const double flips = most_events(rounding.of_elements() * double(one.count));
  const double bound = rounding.of_elements() * rms + rounding.floor + rounding.moved_elements;
  const double zeros = zeros_too_many(one, other, bound);
  Comparison found;
  found.statistics = {compared_counts("nans", one.nans, other.nans, flips),
                      compared_counts("infs", one.infs, other.infs, flips),
                      {"norm", one.norm, other.norm, apart(one.norm, other.norm), means * count},
                      {"mean", one.mean, other.mean, apart(one.mean, other.mean), means},
                      {"std", one.std, other.std, apart(one.std, other.std), means},
                      {"min", one.min, other.min, apart(one.min, other.min), elements},
                      {"max", one.max, other.max, apart(one.max, other.max), elements},
                      {"zeros", double(one.zeros), double(other.zeros), zeros, flips}};
  if (is_integer(a.dtype) && is_integer(b.dtype)) compare_integers(a, b, flips, found);
  note_errors(a, b, found);
  return found;
}

Undecided undecided(const Statistics& gradient, double bound) {
  Undecided found;
  const double count = double(std::max<std::uint64_t>(gradient.count, 1));
  for (const Bin& bin : gradient.histogram) {
    const double wrong = std::min(1.0, bound / std::ldexp(1.0, bin.power));
    const double share = double(bin.negative + bin.positive) / count;
    found.means += share * wrong;
    found.squares += share * wrong * wrong;
    found.worst = std::max(found.worst, wrong);
  }
  return found;
}

}  // namespace rekindle::cli
