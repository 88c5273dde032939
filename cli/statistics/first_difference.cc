#include "cli/statistics/first_difference.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "cli/statistics/error_flow.h"

namespace rekindle::cli {
namespace {

constexpr std::size_t kMostFeeding = 5;

std::set<std::int64_t> steps_of(const Run& run) {
  std::set<std::int64_t> steps;
  for (const Tensor& tensor : run.tensors) steps.insert(tensor.key.step);
  return steps;
}

std::string steps_text(const std::set<std::int64_t>& steps) {
  return steps.empty() ? "no step" : fmt::format("steps {} to {}", *steps.begin(), *steps.rbegin());
}

void note_steps(const Run& a, const Run& b, Divergence& found) {
  const auto one = steps_of(a), other = steps_of(b);
  if (one != other) {
    found.notes.push_back(
        fmt::format("A has {}, B has {}; those of both are compared", steps_text(one), steps_text(other)));
  }
  for (const Run* run : {&a, &b}) {
    if (run->is_cut)
      found.notes.push_back(run->file + " ends early: the process was killed, or max_bytes reached");
  }
  for (const auto& [step, mode] : a.modes) {
    const auto in_b = b.modes.find(step);
    if (in_b == b.modes.end() || in_b->second == mode) continue;
    found.notes.push_back(fmt::format("step {} is {} in A and {} in B", step, mode, in_b->second));
    break;
  }
}

class Walk {
 public:
  Walk(const Run& a, const Run& b, double tolerance) : a_(a), steps_(steps_of(b)), flow_(tolerance) {
    for (const Tensor& tensor : b.tensors) in_b_[tensor.key] = &tensor;
    note_steps(a, b, found_);
  }

  Divergence run() {
    std::set<std::int64_t> compared;
    for (const Tensor& tensor : a_.tensors) {
      if (found_.first && tensor.key.step > found_.first->a->key.step) break;
      if (!steps_.contains(tensor.key.step)) continue;
      compared.insert(tensor.key.step);
      const auto found = in_b_.find(tensor.key);
      if (found == in_b_.end()) {
        found_.only_a.push_back(&tensor);
        continue;
      }
      if (!found_.first) visit(tensor, *found->second);
      in_b_.erase(found);
    }
    for (const auto& [key, tensor] : in_b_) {
      if (compared.contains(key.step)) found_.only_b.push_back(tensor);
    }
    return std::move(found_);
  }

 private:
  void visit(const Tensor& a, const Tensor& b) {
    ++found_.compared;
    Pair pair{&a, &b, {}};
    found_.is_shape = a.shape != b.shape;
    if (!found_.is_shape) pair.comparison = flow_.compare_next(a, b);
    if (found_.is_shape || pair.comparison.exceeds()) {
      found_.first = std::move(pair);
      found_.fed_by = feeding(a);
      return;
    }
    found_.worst = std::max(found_.worst, pair.comparison.worst());
    forget_before(a.key.step);
    before_.push_back(std::move(pair));
  }

  // A tensor is fed by its own step and the one before.
  void forget_before(std::int64_t step) {
    if (before_.empty() || before_.back().a->key.step == step) return;
    const std::int64_t last = before_.back().a->key.step;
    std::erase_if(before_, [&](const Pair& pair) { return pair.a->key.step < last; });
  }

  // The parameters of the module itself, and the tensors that were computed last.
  std::vector<Pair> feeding(const Tensor& tensor) const {
    std::vector<Pair> own, last;
    const bool is_parameter = tensor.key.phase == Phase::kParameter;
    for (const Pair& pair : before_) {
      const Key& key = pair.a->key;
      const bool is_own = module_of(*pair.a) == tensor.key.name && key.phase == Phase::kParameter;
      if (is_own && key.step == tensor.key.step && !is_parameter && tensor.key.output >= 0)
        own.push_back(pair);
      const bool is_gradient = key.phase == Phase::kGradient && key.name == tensor.key.name;
      const bool is_before = key.name == tensor.key.name && key.phase == Phase::kParameter;
      if (is_parameter && (is_gradient || is_before)) last.push_back(pair);
      if (!is_parameter && (key.phase == Phase::kForward || key.phase == Phase::kBackward) &&
          key.step == tensor.key.step) {
        last.push_back(pair);
      }
    }
    if (last.size() > kMostFeeding) last.erase(last.begin(), last.end() - kMostFeeding);
    own.insert(own.end(), last.begin(), last.end());
    return own;
  }

  const Run& a_;
  const std::set<std::int64_t> steps_;
  ErrorFlow flow_;
  std::map<Key, const Tensor*> in_b_;
  std::vector<Pair> before_;
  Divergence found_;
};

}  // namespace

Divergence first_difference(const Run& a, const Run& b, double tolerance) {
  return Walk(a, b, tolerance).run();
}

}  // namespace rekindle::cli
