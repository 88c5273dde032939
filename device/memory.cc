#include "device/memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

namespace rekindle::device {
namespace {

constexpr std::size_t kCpuAlignment = 64, kOtherAlignment = 512;

}  // namespace

std::size_t alignment_of(at::Device device) { return device.is_cpu() ? kCpuAlignment : kOtherAlignment; }

at::Tensor allocate(std::size_t bytes, at::Device device) {
  return at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).device(device));
}

at::Tensor tensor_over(const at::Tensor& memory, std::size_t offset, const at::Tensor& meta) {
  auto* const bytes = static_cast<char*>(memory.mutable_data_ptr());
  return at::for_blob(bytes + offset, meta.sizes())
      .strides(meta.strides())
      .options(meta.options().device(memory.device()))
      .target_device(memory.device())
      .make_tensor();
}

void move_over(const at::Tensor& tensor, const at::Tensor& memory, std::size_t offset) {
  auto* const bytes = static_cast<char*>(memory.mutable_data_ptr());
  tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap({bytes + offset, memory.device()});
}

}  // namespace rekindle::device
