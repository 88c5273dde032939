// known_mask() tells what a mask of attention shows, where it is known while planning. Internal to the
// session room.
//
// An example: transformers' GPT-2 leaves its mask out where every query sees what came before it, and PyTorch
// then takes a kernel that computes half as much. While it is traced, it makes the mask.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace rekindle::session {

enum class KnownMask : std::uint8_t {
  kOther,
  kAll,     // each query sees each key
  kCausal,  // query i sees keys up to i; there are as many keys as queries
};

// mask: bool, [..., queries or 1, keys or 1], on the host; true where a query sees a key.
KnownMask known_mask(const at::Tensor& mask, std::int64_t queries, std::int64_t keys);

}  // namespace rekindle::session
