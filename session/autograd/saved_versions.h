// The versions of the tensors that eager's backward of one forward would read, though the forward did not
// make them or has given them away.
//
// A graph's own backward may read less, or something else: a product of float32 and float64 reads copies of
// its inputs in the graph, and the inputs themselves in eager. A write to these before the backward is an
// error all the same.
#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "session/plan/saved_groups.h"
#include "src/base/digest.h"

namespace rekindle::session {

// The version counters of tensors that outlive a forward, if not undefined; these may be gone.
using VersionCounters = std::vector<c10::VariableVersion>;

VersionCounters counters_of(std::span<const at::Tensor> tensors);
// Returns a number per counter, the same for the same counter; 0 for none, as of a tensor of inference mode.
std::vector<std::uintptr_t> identities_of(const VersionCounters& counters);

// The memory and the versions of a forward's inputs, for backwards that do the forward again. It keeps no
// memory.
class InputState {
 public:
  InputState() = default;
  explicit InputState(std::span<const at::Tensor> inputs);
  // Throws c10::Error where one of these inputs was written, or given other memory (.data), since. `graph`:
  // whose inputs they are, for names.
  void check(std::span<const at::Tensor> inputs, const graph::Graph& graph) const;

 private:
  struct One {
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> memory;  // none: the tensor has no storage
    std::optional<std::uint32_t> version;  // none: it counts none, in inference mode
  };
  std::vector<One> inputs_;
};

// A tensor whose numbers a graph has as constants, and its version counter; the tensor may be gone.
struct SavedConstant {
  explicit SavedConstant(const at::Tensor& constant);

  c10::VariableVersion counter;
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
};

class SavedVersions {
 public:
  using Flags = SavedGroups::Flags;

  // Notes the versions as they are now, after a forward, and what is in `constants`. `saved` has to outlive
  // this. It keeps version counters alive, no tensors. Throws c10::Error where `saved` numbers what is not
  // there.
  SavedVersions(const std::vector<SavedTensor>& saved, std::span<const at::Tensor> inputs,
                std::span<const at::Tensor> outputs, std::span<const SavedConstant> constants);

  // Notes the versions, as they are now, of what a forward has written and its backward reads after that;
  // `saved` numbers `written`.
  void add_written(std::shared_ptr<const std::vector<SavedTensor>> saved,
                   std::span<const at::Tensor> written);

  // Throws c10::Error, in eager's words, where a backward with the cotangents `present` for the gradients
  // `wanted` reads a tensor that was written since, and in its own where it reads a constant that was written
  // through its `.data`, of which no version tells: eager would read what is there now, the graph cannot.
  // `joint`: names the tensor.
  void check(const SavedGroups& groups, const Flags& present, const Flags& wanted,
             const autodiff::JointGraph& joint) const;

 private:
  struct Version {
    const SavedGroup* read_by;
    std::size_t tensor;  // as in SavedTensor; kWritten: one that the forward has written
    c10::VariableVersion counter;
    std::uint32_t then;
  };
  struct Content {
    const SavedGroup* read_by;
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
    Digest then;
  };
  void add(const SavedTensor& saved, std::size_t tensor, const c10::VariableVersion& counter);
  void add_content(const SavedTensor& saved, const SavedConstant& constant);

  std::shared_ptr<const std::vector<SavedTensor>> written_;
  std::vector<Version> versions_;
  std::vector<Content> contents_;
};

}  // namespace rekindle::session
