#include "session/lower/attention_mask.h"

#include <ATen/ops/ones.h>

namespace rekindle::session {

KnownMask known_mask(const at::Tensor& mask, std::int64_t queries, std::int64_t keys) {
  if (mask.scalar_type() != at::kBool || mask.numel() == 0) return KnownMask::kOther;
  if (mask.all().item<bool>()) return KnownMask::kAll;
  const bool is_square =
      mask.dim() >= 2 && queries == keys && mask.size(-1) == keys && mask.size(-2) == queries;
  if (!is_square) return KnownMask::kOther;
  const at::Tensor causal = at::ones({queries, keys}, mask.options()).tril_();
  return mask.equal(causal.expand_as(mask)) ? KnownMask::kCausal : KnownMask::kOther;
}

}  // namespace rekindle::session
