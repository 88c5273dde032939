#include "session/frame.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>

#include <map>
#include <string>

namespace rekindle::session {

Frame::Frame(std::shared_ptr<const Plan> plan)
    : plan_(std::move(plan)), slots_(plan_->slots.size()), held_(slots_.size()) {
  const auto bytes = static_cast<std::int64_t>(plan_->arena_bytes);
  arena_ = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(plan_->device));
  auto* base = static_cast<char*>(arena_.mutable_data_ptr());
  for (SlotId id = 1; id < slots_.size(); ++id) {
    const Slot& slot = plan_->slots[id];
    if (slot.storage == Storage::kConstant) bind(id, slot.constant);
    if (slot.storage != Storage::kArena) continue;
    const auto options = slot.meta.options().device(plan_->device);
    // The frame owns the memory; these tensors never leave it.
    bind(id, at::from_blob(base + slot.offset, slot.meta.sizes(), slot.meta.strides(), options));
  }
}

void Frame::bind(SlotId slot, at::Tensor tensor) {
  slots_[slot] = std::move(tensor);
  bind_views(slot);
}

void Frame::bind_views(SlotId slot) {
  for (const SlotId view : plan_->slots[slot].views) bind(view, plan_->slots[view].view(slots_[slot]));
}

void Frame::release(SlotId slot) {
  std::vector<SlotId> left = {plan_->root_of(slot)};
  while (!left.empty()) {
    const SlotId id = left.back();
    left.pop_back();
    slots_[id].reset();
    held_[id].reset();
    const auto& views = plan_->slots[id].views;
    left.insert(left.end(), views.begin(), views.end());
  }
}

void Frame::set_absent(SlotId root, bool absent) {
  root = plan_->root_of(root);
  if (absent_.empty() && absent) absent_.resize(slots_.size(), false);
  if (!absent_.empty()) absent_[root] = absent;
}

void Frame::unbind() {
  for (SlotId id = 1; id < slots_.size(); ++id) {
    const Storage storage = plan_->slots[plan_->root_of(id)].storage;
    if (storage != Storage::kArena && storage != Storage::kConstant) slots_[id].reset();
    held_[id].reset();
  }
  versions_.clear();
  absent_.clear();
}

void Frame::record_versions() {
  for (const SlotId id : plan_->saved) {
    const Storage storage = plan_->slots[id].storage;
    if (storage == Storage::kArena || storage == Storage::kHeld || slots_[id].is_inference()) continue;
    versions_.emplace_back(id, slots_[id]._version());
  }
}

void Frame::check_versions() const {
  for (const auto& [id, version] : versions_) {
    const at::Tensor& tensor = slots_[id];
    const graph::Value* value = plan_->slots[id].value;
    TORCH_CHECK(
        static_cast<std::uint32_t>(tensor._version()) == version,
        "one of the variables needed for gradient computation has been modified by an inplace operation: [",
        tensor.toString(), " ", tensor.sizes(), "], which is '", value == nullptr ? "" : value->name(),
        "' of the wrapped module, is at version ", tensor._version(), "; expected version ", version,
        " instead.");
  }
}

std::unique_ptr<Frame> Frame::copy_for_backward() const {
  auto copy = std::make_unique<Frame>(plan_);
  for (const SlotId id : plan_->saved) {
    copy->take(id, *this, id);
  }
  return copy;
}

void Frame::take_saved(const Frame& other) {
  std::map<std::pair<std::string, bool>, SlotId> theirs;
  for (SlotId id = 1; id < other.slots_.size(); ++id) {
    const Slot& slot = other.plan_->slots[id];
    if (slot.value != nullptr) theirs.emplace(std::pair(slot.value->name(), slot.layout), id);
  }
  for (const SlotId id : plan_->saved) {
    const Slot& slot = plan_->slots[id];
    const auto found = slot.value == nullptr ? theirs.end() : theirs.find({slot.value->name(), slot.layout});
    TORCH_INTERNAL_ASSERT(found != theirs.end(), "a saved value has no counterpart");
    take(id, other, found->second);
  }
}

void Frame::take(SlotId slot, const Frame& other, SlotId theirs) {
  const Storage storage = plan_->slots[slot].storage;
  if (storage == Storage::kHeld) {
    held_[slot] = other.held_[theirs];
  } else if (storage == Storage::kArena) {
    slots_[slot].copy_(other.slots_[theirs]);
  } else {
    bind(slot, other.slots_[theirs]);
  }
}

void FramePool::Return::operator()(Frame* frame) const {
  std::unique_ptr<Frame> owned(frame);
  owned->unbind();
  const std::lock_guard lock(pool->mutex_);
  --pool->in_use_;
  pool->idle_.push_back(std::move(owned));
}

FramePool::Handle FramePool::acquire() {
  std::unique_ptr<Frame> frame;
  {
    const std::lock_guard lock(mutex_);
    high_water_ = std::max(high_water_, ++in_use_);
    if (!idle_.empty()) {
      frame = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (frame == nullptr) frame = std::make_unique<Frame>(plan_);
  return Handle(frame.release(), Return{shared_from_this()});
}

std::size_t FramePool::high_water() const {
  const std::lock_guard lock(mutex_);
  return high_water_;
}

}  // namespace rekindle::session
