#include "session/run/frame.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/TensorOptions.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "device/copies.h"
#include "device/memory.h"

namespace rekindle::session {
namespace {

void check_version(const at::Tensor& tensor, std::uint32_t version, const std::string& name) {
  TORCH_CHECK(
      static_cast<std::uint32_t>(tensor._version()) == version,
      "one of the variables needed for gradient computation has been modified by an inplace operation: [",
      tensor.toString(), " ", tensor.sizes(), "], which is '", name,
      "' of the wrapped module, is at version ", tensor._version(), "; expected version ", version,
      " instead.");
}

void share_versions(const at::Tensor& tensor, const at::Tensor& with) {
  torch::autograd::impl::set_version_counter(tensor, torch::autograd::impl::version_counter(with));
}

// A tensor in `storage`, laid out as `meta`, with the version counter of `versions`.
at::Tensor tensor_in(const c10::Storage& storage, std::int64_t offset, const at::Tensor& meta,
                     const at::Tensor& versions) {
  const c10::DispatchKeySet key(meta.options().device(storage.device()).computeDispatchKey());
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), key, meta.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes(), meta.strides(), offset);
  share_versions(tensor, versions);
  return tensor;
}

bool shares_storage(const at::Tensor& tensor, const c10::Storage& storage) {
  return tensor.has_storage() && tensor.storage().unsafeGetStorageImpl() == storage.unsafeGetStorageImpl();
}

constexpr const char* kAfterTheBackward = "Give it other memory (.data) after the backward";

// Throws c10::Error where an input's memory was exchanged for some that kernels of the plan do not read.
void check_layout(const at::Tensor& tensor, const at::Tensor& meta, const graph::Value* value) {
  TORCH_CHECK(tensor.sizes() == meta.sizes() && tensor.strides() == meta.strides() &&
                  tensor.scalar_type() == meta.scalar_type(),
              "'", value == nullptr ? "" : value->name(), "' of the wrapped module has the sizes ",
              tensor.sizes(), " and strides ", tensor.strides(), " of ", tensor.scalar_type(),
              " at the backward, which reads it; at the forward it had ", meta.sizes(), " and ",
              meta.strides(), " of ", meta.scalar_type(), ". ", kAfterTheBackward);
}

}  // namespace

Frame::Frame(std::shared_ptr<const Plan> plan)
    : plan_(std::move(plan)), slots_(plan_->slots.size()), held_(slots_.size()) {
  for (SlotId id = 1; id < slots_.size(); ++id) {
    if (plan_->slots[id].constant.defined()) bind(id, plan_->slots[id].constant);
  }
}

Frame::~Frame() { give_back_arena(); }

void Frame::take_arena() {
  arena_ = device::ArenaPool::of(plan_->device).take(plan_->arena_bytes);
  const at::Tensor& memory = arena_->memory;
  const void* const place = memory.const_data_ptr();
  if (place == place_ && place != nullptr) return;
  place_ = nullptr;  // until all slots see it
  for (SlotId id = 1; id < slots_.size(); ++id) {
    const Slot& slot = plan_->slots[id];
    if (slot.storage != Storage::kArena) continue;
    // The arena owns the memory; these tensors never leave the frame.
    if (slots_[id].defined()) {
      device::move_over(slots_[id], memory, slot.offset);
    } else {
      bind(id, device::tensor_over(memory, slot.offset, slot.meta));
    }
  }
  place_ = place;
}

void Frame::give_back_arena() {
  if (arena_ != nullptr) device::ArenaPool::of(plan_->device).give_back(std::move(arena_));
}

void Frame::bind(SlotId slot, at::Tensor tensor) {
  slots_[slot] = std::move(tensor);
  bind_views(slot);
}

void Frame::bind_views(SlotId slot) {
  const std::vector<SlotId>& views = plan_->slots[slot].views;
  if (views.empty()) return;
  // An edit of an input in place shows in its views, which a tape may hold.
  const bool is_input = plan_->slots[plan_->root_of(slot)].storage == Storage::kInput;
  for (const SlotId view : views) {
    at::Tensor made = plan_->slots[view].view(slots_[slot]);
    if (is_input && !made.is_inference()) share_versions(made, slots_[slot]);
    bind(view, std::move(made));
  }
}

void Frame::release(SlotId slot) { release_views(plan_->root_of(slot)); }

void Frame::release_views(SlotId slot) {
  slots_[slot].reset();
  held_[slot].reset();
  for (const SlotId view : plan_->slots[slot].views) release_views(view);
}

void Frame::set_absent(SlotId root, bool absent) {
  root = plan_->root_of(root);
  if (absent_.empty() && absent) absent_.resize(slots_.size(), false);
  if (!absent_.empty()) absent_[root] = absent;
}

std::vector<at::Tensor> Frame::delivered(const std::vector<SlotId>& slots) const {
  std::vector<at::Tensor> tensors, to, from;
  for (const SlotId slot : slots) {
    const at::Tensor& tensor = tensors.emplace_back(slots_[slot]);
    if (recorded_ == nullptr || !recorded_->holds(plan_->root_of(slot)) || !tensor.defined()) continue;
    // With all that lies between its elements, so that it lies as before, whatever its strides are.
    const auto extent = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), /*itemsize=*/1);
    from.push_back(tensor.as_strided({static_cast<std::int64_t>(extent)}, {1}));
    to.push_back(at::empty_like(from.back()));
    tensors.back() = to.back().as_strided(tensor.sizes(), tensor.strides(), 0);
  }
  if (!to.empty()) device::copy_all(to, from);
  return tensors;
}

std::shared_ptr<RecordedRuns> Frame::memory_of(SlotId root) const {
  return recorded_ != nullptr && recorded_->holds(root) ? recorded_ : nullptr;
}

void Frame::unbind() {
  for (SlotId id = 1; id < slots_.size(); ++id) {
    const Storage storage = plan_->slots[plan_->root_of(id)].storage;
    if (storage != Storage::kArena && storage != Storage::kConstant) slots_[id].reset();
    held_[id].reset();
  }
  versions_.clear();
  memories_.clear();
  absent_.clear();
  left_out_.clear();
  borrowed_.clear();
  kept_.reset();
  if (recorded_ == nullptr) return;
  recorded_->end();
  if (recorded_.use_count() > 1) record_launches();  // somebody else still reads what is in its memory
}

void Frame::record_saved() {
  for (const RememberedInput& input : plan_->remembered) {
    const at::Tensor& tensor = slots_[input.slot];
    const bool noted = tensor.defined() && tensor.has_storage();
    memories_.push_back(noted ? Memory{tensor.storage(), tensor.storage_offset()} : Memory());
  }
  for (std::uint32_t position = 0; position < plan_->kept.size(); ++position) {
    const SlotId id = plan_->kept[position];
    const Storage storage = plan_->slots[id].storage;
    if (storage == Storage::kArena || storage == Storage::kHeld || !slots_[id].defined()) continue;
    const c10::VariableVersion& counter = torch::autograd::impl::version_counter(slots_[id]);
    if (counter.enabled())  // not in inference mode
      versions_.emplace_back(position, counter.current_version());
  }
}

bool Frame::is_exchanged(std::size_t which) const {
  return memories_[which].storage &&
         !shares_storage(slots_[plan_->remembered[which].slot], memories_[which].storage);
}

at::Tensor Frame::remembered(std::size_t which) const {
  const auto& [id, stays] = plan_->remembered[which];
  const Slot& slot = plan_->slots[id];
  TORCH_CHECK(
      !stays || !is_exchanged(which), "'", slot.value == nullptr ? "" : slot.value->name(),
      "' of the wrapped module has other memory than at the forward, and eager's backward would read the "
      "one here and the other there. ",
      kAfterTheBackward);
  return tensor_in(memories_[which].storage, memories_[which].offset, slot.meta, slots_[id]);
}

at::Tensor Frame::saved(SlotId slot, bool own) const {
  const auto found = std::ranges::find(plan_->remembered, slot, &RememberedInput::slot);
  const auto which = static_cast<std::size_t>(found - plan_->remembered.begin());
  const bool is_noted = which < memories_.size() && memories_[which].storage;
  return is_noted && (own || is_exchanged(which)) ? remembered(which) : slots_[slot];
}

void Frame::bind_saved() {
  for (std::size_t i = 0; i < memories_.size(); ++i) {
    if (is_exchanged(i)) bind(plan_->remembered[i].slot, remembered(i));
  }
  memories_.clear();
  for (const SlotId id : plan_->saved) {
    const Slot& slot = plan_->slots[id];
    const at::Tensor& tensor = slots_[id];
    if (slot.storage != Storage::kInput || slot.layout || slot.open || !tensor.defined()) continue;
    check_layout(tensor, slot.meta, slot.value);
    if (!slot.views.empty() && tensor.has_storage() &&
        !shares_storage(slots_[slot.views.front()], tensor.storage()))
      bind_views(id);
  }
}

void Frame::check_versions(const Delivery& delivery) const {
  auto noted = versions_.begin();
  for (const std::uint32_t position : delivery.reads) {
    while (noted != versions_.end() && noted->first < position) ++noted;
    if (noted == versions_.end()) return;
    if (noted->first != position) continue;
    const SlotId id = plan_->kept[position];
    const graph::Value* value = plan_->slots[id].value;
    check_version(slots_[id], noted->second, value == nullptr ? "" : value->name());
  }
}

void SavedValues::check_versions() const {
  for (const auto& [key, value] : *this) {
    if (value.version) check_version(value.tensor, *value.version, key.first);
  }
}

SavedValues SavedValues::only(const std::unordered_set<std::string>& names) const {
  SavedValues some;
  for (const auto& [key, value] : *this) {
    if (std::ranges::any_of(value.read, [&](const std::string& name) { return names.contains(name); }))
      some.emplace(key, value);
  }
  return some;
}

SavedValues Frame::saved_values(const std::unordered_set<std::string>& names, bool own) const {
  SavedValues values;
  if (names.empty()) return values;
  std::map<SlotId, std::vector<std::string>> read;  // by root
  for (SlotId id = 1; id < slots_.size(); ++id) {
    const graph::Value* value = plan_->slots[id].value;
    if (value != nullptr && names.contains(value->name())) read[plan_->root_of(id)].push_back(value->name());
  }
  const std::map<std::uint32_t, std::uint32_t> versions(versions_.begin(), versions_.end());
  for (std::uint32_t position = 0; position < plan_->kept.size(); ++position) {
    const SlotId id = plan_->kept[position];
    const Slot& slot = plan_->slots[id];
    const auto found = read.find(id);
    if (found == read.end() || slot.last_value() == nullptr) continue;
    SavedValue value{saved(id, own), held_[id],     std::move(found->second),
                     std::nullopt,   memory_of(id), slot.taken_by != nullptr};
    if (own && slot.storage == Storage::kArena && value.tensor.defined()) value.tensor = value.tensor.clone();
    if (const auto then = versions.find(position); then != versions.end()) value.version = then->second;
    values.emplace(std::pair(slot.last_value()->name(), slot.layout), std::move(value));
  }
  return values;
}

std::unique_ptr<Frame> Frame::copy_for_backward() const {
  auto copy = std::make_unique<Frame>(plan_);
  copy->take_arena();
  for (const SlotId id : plan_->saved) {
    if (auto memory = memory_of(id)) copy->borrowed_.push_back(std::move(memory));
    copy->take(id, saved(id, false), held_[id]);
  }
  copy->versions_ = versions_;
  return copy;
}

void Frame::take_saved(const SavedValues& values) {
  for (const SlotId id : plan_->saved) {
    const Slot& slot = plan_->slots[id];
    const graph::Value* held = slot.last_value();
    const auto found = held == nullptr ? values.end() : values.find({held->name(), slot.layout});
    TORCH_INTERNAL_ASSERT(found != values.end(), "a saved value has no counterpart");
    if (found->second.memory != nullptr) borrowed_.push_back(found->second.memory);
    at::Tensor tensor = found->second.tensor;
    if (found->second.is_taken || slot.taken_by != nullptr)  // in the same bytes, whatever was there before
      tensor = tensor.as_strided(slot.meta.sizes(), slot.meta.strides());
    take(id, tensor, found->second.held);
  }
}

void Frame::take(SlotId slot, const at::Tensor& tensor, const Held& held) {
  const Storage storage = plan_->slots[slot].storage;
  if (storage == Storage::kHeld) {
    held_[slot] = held;
  } else if (storage == Storage::kArena) {
    slots_[slot].copy_(tensor);
  } else {
    bind(slot, tensor);
  }
}

}  // namespace rekindle::session
