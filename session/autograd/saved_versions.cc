#include "session/autograd/saved_versions.h"

#include <torch/csrc/autograd/variable.h>

#include <string>

namespace rekindle::session {
namespace {

std::string name_of(std::size_t tensor, const autodiff::JointGraph& joint) {
  if (tensor < joint.forward_inputs) return joint.graph->inputs()[tensor]->name();
  return "result " + std::to_string(tensor - joint.forward_inputs);
}

}  // namespace

SavedVersions::SavedVersions(const std::vector<SavedTensor>& saved, std::span<const at::Tensor> inputs,
                             std::span<const at::Tensor> outputs) {
  versions_.reserve(saved.size());
  for (const SavedTensor& one : saved) {
    if (one.tensor >= inputs.size() + outputs.size()) continue;
    const at::Tensor& tensor =
        one.tensor < inputs.size() ? inputs[one.tensor] : outputs[one.tensor - inputs.size()];
    const c10::VariableVersion& counter = torch::autograd::impl::version_counter(tensor);
    if (!counter.enabled()) continue;  // of a tensor of inference mode
    versions_.push_back({&one, counter, counter.current_version()});
  }
}

void SavedVersions::check(const SavedGroups& groups, const Flags& present, const Flags& wanted,
                          const autodiff::JointGraph& joint) const {
  for (const Version& version : versions_) {
    const std::uint32_t now = version.counter.current_version();
    TORCH_CHECK(
        now == version.then || !groups.runs(version.saved->read_by, present, wanted),
        "one of the variables needed for gradient computation has been modified by an inplace operation: '",
        name_of(version.saved->tensor, joint), "' of the wrapped module is at version ", now,
        "; expected version ", version.then, " instead.");
  }
}

}  // namespace rekindle::session
