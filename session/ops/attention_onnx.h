// Attention and rotary embedding as ONNX defines them, for its ops and those of com.microsoft.
#pragma once

#include "session/lower/op.h"

namespace rekindle::session {

struct Attention {
  std::int64_t q_heads, kv_heads;  // of packed inputs [B, L, heads * E]
  std::int64_t qk_mode, left, right;
  bool causal;
  double scale, softcap;  // scale 0: 1 / sqrt(head size); softcap 0: none
  at::ScalarType softmax_type;
};

// in: query, key, value, mask?, past key?, past value?, number of keys that are no padding?. The result: y,
// present key, present value, scores at the stage that qk_mode tells.
Tensors attend(const Attention& how, const Tensors& in);

// in: x[B, heads, L, E] or [B, L, heads * E], cos, sin (per position, or per batch and position), positions?.
at::Tensor rotate(const Tensors& in, std::int64_t heads, std::int64_t rotated, bool interleaved);

}  // namespace rekindle::session
