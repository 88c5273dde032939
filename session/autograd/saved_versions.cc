#include "session/autograd/saved_versions.h"

#include <torch/csrc/autograd/variable.h>

#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "session/autograd/own_writes.h"

namespace rekindle::session {
namespace {

constexpr std::size_t kWritten = std::numeric_limits<std::size_t>::max();

std::string name_of(std::size_t tensor, const autodiff::JointGraph& joint) {
  if (tensor == kWritten) return "a tensor that the forward has written";
  if (tensor < joint.forward_inputs) return joint.graph->inputs()[tensor]->name();
  tensor -= joint.forward_inputs;
  return tensor < joint.forward_outputs ? "result " + std::to_string(tensor) : "a plain tensor";
}

// Undefined where it is gone.
at::Tensor alive(const c10::weak_intrusive_ptr<c10::TensorImpl>& tensor) { return at::Tensor(tensor.lock()); }

// None where versions are not counted, as in inference mode.
std::optional<std::uint32_t> version_now(const at::Tensor& tensor) {
  const c10::VariableVersion& counter = torch::autograd::impl::version_counter(tensor);
  return counter.enabled() ? std::optional(version_of(counter)) : std::nullopt;
}

// Of the bytes that a tensor has, in the order of its dimensions.
Digest content_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().contiguous();
  return digest_of({static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()});
}

}  // namespace

InputState::InputState(std::span<const at::Tensor> inputs) {
  inputs_.reserve(inputs.size());
  for (const at::Tensor& input : inputs) {
    One& one = inputs_.emplace_back();
    if (input.has_storage()) one.memory = input.storage().getWeakStorageImpl();
    one.version = version_now(input);
  }
}

void InputState::check(std::span<const at::Tensor> inputs, const graph::Graph& graph) const {
  for (std::size_t i = 0; i < inputs.size() && i < inputs_.size(); ++i) {
    const auto& [memory, version] = inputs_[i];
    const bool same_memory =
        !memory || (inputs[i].has_storage() &&
                    inputs[i].storage().unsafeGetStorageImpl() == memory->_unsafe_get_target());
    TORCH_CHECK(
        same_memory && version_now(inputs[i]) == version, "'", graph.inputs()[i]->name(),
        "' of the wrapped module was ",
        same_memory ? "modified by an inplace operation" : "given other memory",
        " since the forward, which this backward does again: create_graph=True, is_grads_batched=True, "
        "gradients and hooks of results, and the detection of anomalies need what it was. Change it after "
        "the backward");
  }
}

SavedConstant::SavedConstant(const at::Tensor& constant)
    : counter(torch::autograd::impl::version_counter(constant)), tensor(constant.getIntrusivePtr()) {}

VersionCounters counters_of(std::span<const at::Tensor> tensors) {
  VersionCounters counters;
  counters.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) counters.push_back(torch::autograd::impl::version_counter(tensor));
  return counters;
}

std::vector<std::uintptr_t> identities_of(const VersionCounters& counters) {
  std::vector<std::uintptr_t> identities(counters.size());
  for (std::size_t i = 0; i < counters.size(); ++i) {
    // A pointer to what is counted is all that it has, and it does not give it away.
    static_assert(sizeof(c10::VariableVersion) == sizeof(std::uintptr_t));
    std::memcpy(&identities[i], static_cast<const void*>(&counters[i]), sizeof(std::uintptr_t));
  }
  return identities;
}

SavedVersions::SavedVersions(const std::vector<SavedTensor>& saved, std::span<const at::Tensor> inputs,
                             std::span<const at::Tensor> outputs, std::span<const SavedConstant> constants) {
  versions_.reserve(saved.size());
  const std::size_t made = inputs.size() + outputs.size();
  for (const SavedTensor& one : saved) {
    TORCH_CHECK(one.tensor < made + constants.size(), "the session was not given constant ",
                one.tensor - made, " (Session::set_constants)");
    const c10::VariableVersion& counter =
        one.tensor >= made
            ? constants[one.tensor - made].counter
            : torch::autograd::impl::version_counter(
                  one.tensor < inputs.size() ? inputs[one.tensor] : outputs[one.tensor - inputs.size()]);
    add(one, one.tensor, counter);
    if (one.tensor >= made) add_content(one, constants[one.tensor - made]);
  }
}

void SavedVersions::add_written(std::shared_ptr<const std::vector<SavedTensor>> saved,
                                std::span<const at::Tensor> written) {
  for (const SavedTensor& one : *saved) {
    TORCH_CHECK(one.tensor < written.size(), "a forward that reads write ", one.tensor, " has ",
                written.size());
    add(one, kWritten, torch::autograd::impl::version_counter(written[one.tensor]));
  }
  written_ = std::move(saved);
}

void SavedVersions::add(const SavedTensor& saved, std::size_t tensor, const c10::VariableVersion& counter) {
  if (!counter.enabled()) return;  // of a tensor of inference mode
  versions_.push_back({&saved.read_by, tensor, counter, version_of(counter)});
}

void SavedVersions::add_content(const SavedTensor& saved, const SavedConstant& constant) {
  const at::Tensor tensor = alive(constant.tensor);
  if (!tensor.defined() || !tensor.is_cpu() || tensor.layout() != at::kStrided) return;
  contents_.push_back({&saved.read_by, constant.tensor, content_of(tensor)});
}

void SavedVersions::check(const SavedGroups& groups, const Flags& present, const Flags& wanted,
                          const autodiff::JointGraph& joint) const {
  for (const Version& version : versions_) {
    const std::uint32_t now = version_of(version.counter);
    TORCH_CHECK(
        now == version.then || !groups.runs(*version.read_by, present, wanted),
        "one of the variables needed for gradient computation has been modified by an inplace operation: '",
        name_of(version.tensor, joint), "' of the wrapped module is at version ", now, "; expected version ",
        version.then, " instead.");
  }
  for (const Content& content : contents_) {
    const at::Tensor now = alive(content.tensor);
    if (!now.defined() || !groups.runs(*content.read_by, present, wanted)) continue;
    TORCH_CHECK(content_of(now) == content.then,
                "a plain tensor of the wrapped module, which the backward reads, was written through .data "
                "since the forward, whose numbers the graph has; register it as a buffer");
  }
}

}  // namespace rekindle::session
