#include "device/cpu_allocator.h"

#include <atomic>

#include "device/operator_memory.h"

namespace rekindle::device {
namespace {

std::atomic<CpuAllocator*> installed = nullptr;

}  // namespace

CpuAllocator& CpuAllocator::install() {
  static CpuAllocator& only = []() -> CpuAllocator& {
    auto* const allocator = new CpuAllocator(c10::GetAllocator(at::kCPU));
    installed.store(allocator);  // before anything of it can be freed
    c10::SetAllocator(at::kCPU, allocator);
    return *allocator;
  }();
  return only;
}

std::size_t CpuAllocator::release() {
  CpuAllocator* const allocator = installed.load();
  return allocator == nullptr || !allocator->kept_ ? 0 : allocator->kept_->release();
}

std::size_t CpuAllocator::kept_bytes() {
  CpuAllocator* const allocator = installed.load();
  return allocator == nullptr || !allocator->kept_ ? 0 : allocator->kept_->bytes();
}

CpuAllocator::CpuAllocator(c10::Allocator* inner) : inner_(inner) {
  if (inner_->raw_deleter() != nullptr) kept_.emplace(*inner_);
}

c10::DataPtr CpuAllocator::allocate(std::size_t bytes) {
  OperatorMemory* const scope = OperatorMemory::current();
  if (scope != nullptr) {
    if (void* const memory = scope->take(bytes)) return {memory, memory, &free_any, at::kCPU};
  }
  c10::DataPtr data;
  if (kept_ && bytes >= KeptMemory::kLarge) {
    void* const memory = kept_->allocate(bytes);
    data = {memory, memory, &free_any, at::kCPU};
  } else {
    data = inner_->allocate(bytes);
    if (kept_) {
      [[maybe_unused]] const bool set = data.compare_exchange_deleter(inner_->raw_deleter(), &free_any);
    }
  }
  if (scope != nullptr) scope->set_memory(data.get());
  return data;
}

c10::DeleterFnPtr CpuAllocator::raw_deleter() const { return kept_ ? &free_any : nullptr; }

void CpuAllocator::copy_data(void* to, const void* from, std::size_t bytes) const {
  inner_->copy_data(to, from, bytes);
}

bool CpuAllocator::is_simple_data_ptr(const c10::DataPtr& data) const {
  return inner_->is_simple_data_ptr(data);
}

void CpuAllocator::free_any(void* memory) {
  if (OperatorMemory* const scope = OperatorMemory::current()) scope->set_freed(memory);
  if (OperatorMemory::take_back(memory)) return;
  CpuAllocator& self = *installed.load(std::memory_order_relaxed);
  if (!self.kept_ || !self.kept_->free(memory)) self.inner_->raw_deallocate(memory);
}

}  // namespace rekindle::device
