// Cases of cross entropy, with what eager makes of them.
#pragma once

#include <vector>

#include "kernels/cross_entropy.h"
#include "tests/kernels/tensors.h"

namespace rekindle::testing {

struct Case {
  at::Tensor scores, target, weight, dloss;
  kernels::CrossEntropyOptions options;
};

struct Outputs {
  at::Tensor loss, logsumexp, dscores;
};

inline at::Tensor empty_loss(const Case& c) {
  return at::empty(c.options.reduction == kernels::Reduction::kNone ? c.target.sizes() : at::IntArrayRef{},
                   c.scores.options());
}

inline at::ScalarType logsumexp_type(const Case& c) {
  return c.scores.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Eager in `dtype`.
inline Outputs run_eager(const Case& c, at::ScalarType dtype) {
  const auto scores = c.scores.to(dtype).detach().clone().requires_grad_(true);
  const auto weight = c.weight.defined() ? c.weight.to(dtype) : c.weight;
  const auto reduction = c.options.reduction == kernels::Reduction::kNone   ? at::Reduction::None
                         : c.options.reduction == kernels::Reduction::kMean ? at::Reduction::Mean
                                                                            : at::Reduction::Sum;
  const auto loss = at::cross_entropy_loss(scores, c.target, weight, reduction, c.options.ignore_index,
                                           c.options.label_smoothing);
  loss.backward(c.dloss.to(dtype));
  return {loss.detach(), at::Tensor(), scores.grad()};
}

// Random scores and targets; every fifth target is ignored.
inline Case make_case(std::vector<std::int64_t> sizes, at::ScalarType dtype,
                      kernels::CrossEntropyOptions options, bool weighted, double spread = 3) {
  Case c;
  c.options = options;
  c.scores = (random_normal(sizes) * spread).to(dtype);
  const std::int64_t classes = sizes[sizes.size() == 1 ? 0 : 1];
  sizes.erase(sizes.begin() + (sizes.size() == 1 ? 0 : 1));
  c.target = at::randint(classes, sizes, at::kLong);
  if (c.target.dim() > 0) c.target.flatten().slice(0, 3, {}, 5).fill_(options.ignore_index);
  if (weighted) c.weight = at::rand({classes}, at::kDouble).add_(0.5).to(dtype);
  c.dloss = options.reduction == kernels::Reduction::kNone ? random_normal(sizes, dtype)
                                                           : at::full({}, 0.7, c.scores.options());
  return c;
}

}  // namespace rekindle::testing
