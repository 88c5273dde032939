#include "session/padding/needed_rows.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

namespace rekindle::session {
namespace {

using padding::Mask;
using padding::RowQuestions;

// [B, L]: what losses and selections read.
at::Tensor counted_rows(const RowQuestions& questions, const std::vector<at::Tensor>& answers,
                        at::Tensor counted) {
  for (const RowQuestions::Target& target : questions.targets)
    counted.logical_or_(answers.at(target.output).ne(target.ignored).view_as(counted));
  for (const RowQuestions::WeightOutput& weight : questions.weights) {
    const at::Tensor counts = answers.at(weight.output).reshape({counted.numel(), -1}).ne(0);
    counted.logical_or_((weight.negated ? counts.logical_not() : counts).any(1).view_as(counted));
  }
  for (const std::int64_t position : questions.positions) counted.select(1, position).fill_(true);
  return counted;
}

// [B or 1, queries or 1, keys]: whether a query sees a key, in any head. `rank`: of the scores.
at::Tensor shown(const at::Tensor& mask, Mask::How how, int rank) {
  at::Tensor shown = how == Mask::How::kAdded   ? mask.gt(padding::kHidden)
                     : how == Mask::How::kHides ? mask.logical_not()
                                                : mask.to(at::kBool);
  while (shown.dim() < rank) shown = shown.unsqueeze(0);
  while (shown.dim() > 3) shown = shown.size(1) == 1 ? shown.squeeze(1) : shown.any(1);
  return shown;
}

// A query from which masks hide all keys weighs them all alike.
at::Tensor sight_of(const RowQuestions::Sight& sight, const std::vector<at::Tensor>& answers,
                    const at::Tensor& needed) {
  at::Tensor seen = at::ones({1, 1, needed.size(1)}, needed.options());
  if (sight.causal) {
    const at::Tensor at = at::arange(needed.size(1), needed.options().dtype(at::kLong));
    seen = at.unsqueeze(0).le(at.unsqueeze(1)).unsqueeze(0);
  }
  for (const RowQuestions::MaskOutput& mask : sight.masks)
    seen = seen.logical_and(shown(answers.at(mask.output), mask.how, sight.rank));
  return seen.logical_or(seen.any(-1, /*keepdim=*/true).logical_not());
}

// Adds to [B, L] needed rows what these see; whether that are more.
bool add_seen(const at::Tensor& sees, bool queries_are_rows, at::Tensor& needed) {
  at::Tensor seen;
  if (!queries_are_rows) {
    seen = sees.any(1);
  } else if (sees.size(1) == 1) {
    seen = sees.squeeze(1).logical_and(needed.any(-1, /*keepdim=*/true));
  } else {
    seen = sees.logical_and(needed.unsqueeze(-1)).any(1);
  }
  const at::Tensor more = seen.expand_as(needed).logical_and(needed.logical_not());
  if (!more.any().item<bool>()) return false;
  needed.logical_or_(more);
  return true;
}

std::int64_t count(const at::Tensor& rows) { return rows.sum().item<std::int64_t>(); }

// The rows as a vector, filled up from `others` to a number that occurs often.
at::Tensor filled(const at::Tensor& rows, const at::Tensor& others) {
  const std::int64_t tokens = rows.numel(), step = std::max<std::int64_t>(1, tokens / kRowSteps);
  const std::int64_t have = count(rows);
  const std::int64_t wanted = std::min((std::max<std::int64_t>(have, 1) + step - 1) / step * step, tokens);
  if (wanted == have) return at::nonzero(rows).squeeze(1);
  const at::Tensor spare = at::nonzero(others.logical_and(rows.logical_not())).squeeze(1);
  at::Tensor all = rows.clone();
  all.index_fill_(0, spare.slice(0, 0, wanted - have), at::Scalar(true));
  return at::nonzero(all).squeeze(1);
}

}  // namespace

NeededRows find_needed_rows(const RowQuestions& questions, const std::vector<at::Tensor>& answers,
                            std::int64_t batch, std::int64_t length) {
  const auto options = answers.empty() ? at::TensorOptions() : answers[0].options();
  const at::Tensor counted =
      counted_rows(questions, answers, at::zeros({batch, length}, options.dtype(at::kBool)));
  at::Tensor needed = counted.clone();
  std::vector<at::Tensor> sights;
  for (const RowQuestions::Sight& sight : questions.sights)
    sights.push_back(sight_of(sight, answers, needed));
  for (bool more = true; more;) {
    more = false;
    for (std::size_t i = 0; i < sights.size(); ++i)
      more = add_seen(sights[i], questions.sights[i].queries_are_rows, needed) || more;
  }
  NeededRows found;
  found.needed = count(needed);
  found.counts = count(counted);
  found.rows = filled(needed.flatten(), at::ones_like(needed).flatten());
  at::Tensor taken = at::zeros_like(needed).flatten();
  taken.index_fill_(0, found.rows, at::Scalar(true));
  found.counted = filled(counted.flatten(), taken);
  found.counted_among_rows = taken.cumsum(0).sub(1).index_select(0, found.counted);
  found.is_needed = needed.flatten().index_select(0, found.rows);
  found.counts_itself = counted.flatten().index_select(0, found.counted);
  return found;
}

}  // namespace rekindle::session
