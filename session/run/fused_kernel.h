// FusedKernel: several pointwise instructions as one kernel, which is compiled while the first steps run.
//
// Until it is there, and wherever it cannot serve, the instructions' own kernels run one by one: their
// results are the reference. The first results of each compiled kernel are compared with theirs; one that
// computes anything else is never used, and a warning says so.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/kernel_compiler.h"
#include "session/lower/op.h"
#include "src/fusion/kernel_source.h"

namespace rekindle::session {

class FusedKernel {
 public:
  // An instruction, over slots that count from 1: the inputs of the fused kernel, then what members compute,
  // then views.
  struct Member {
    Kernel kernel;
    std::vector<std::uint32_t> inputs, outputs;
    Layout layout;  // of its output
    // Describes an output of another member that this one reads in other sizes, through a slot of its own.
    struct View {
      std::uint32_t slot = 0, base = 0;
      Sizes sizes;
    };
    std::vector<View> views;
    std::vector<std::uint32_t> release;  // slots that no later member reads, and that are no result
  };
  struct Parts {
    std::string name;                      // "Mul+Tanh+Add"
    std::size_t slots = 1;                 // with the absent one, 0
    std::size_t inputs = 0, operands = 0;  // of the inputs, the compiled kernel reads the first `operands`
    std::vector<Member> members;
    std::vector<std::uint32_t> outputs;  // slots that are results
    fusion::Kernel kernel;
    at::Device device = at::kCPU;
  };
  explicit FusedKernel(Parts parts);

  // inputs and outputs as of the instruction, whose outputs are planned memory. Throws what members throw.
  void run(const Args& args);
  const std::string& name() const { return parts_.name; }
  // Returns whether further runs launch what the last one has launched: nothing is compiled or tried any
  // more.
  bool is_settled() const;
  // Returns whether runs use the compiled kernel, as it was found right.
  bool is_in_use() const;

 private:
  // Runs the members and returns the results. `in_place`: they lie in the outputs' memory afterwards;
  // otherwise that is left alone.
  std::vector<at::Tensor> run_members(const Args& args, bool in_place) const;
  void deliver(const Args& args, const std::vector<at::Tensor>& results) const;
  // Returns whether the kernel takes operands that lie where these do, and sets their addresses.
  bool set_addresses(const Args& args, std::vector<std::int64_t>& words) const;
  bool shares_memory_with_inputs(const Args& args, std::size_t output) const;
  void try_kernel(const Args& args, device::RuntimeKernel& kernel, const std::vector<std::int64_t>& words);

  Parts parts_;
  std::shared_ptr<device::CompiledKernel> compiled_;
};

}  // namespace rekindle::session
