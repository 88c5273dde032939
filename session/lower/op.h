// How an op is lowered: from a node and what is known of its inputs to output layouts and a kernel.
//
// One function per op, registered beside itself with REKINDLE_OP in session/ops/<family>.cc. It runs when a
// plan is made: it checks, infers the outputs' sizes and binds every attribute, so that the kernel only
// computes. Internal to the session room: this header is the one place where ops meet ATen.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/concat.h"
#include "src/fusion/body.h"
#include "src/graph/graph.h"

namespace rekindle::session {

using Sizes = std::vector<std::int64_t>;
using Tensors = std::vector<at::Tensor>;

// What a value is that is no tensor (a tape): handed from one kernel to another, freed with its last owner.
using Held = std::shared_ptr<void>;

// One run's tensors of one instruction. An absent optional input is an undefined tensor.
class Args {
 public:
  Args(at::Tensor* slots, Held* held, const std::uint32_t* inputs, const std::uint32_t* outputs)
      : slots_(slots), held_(held), inputs_(inputs), outputs_(outputs) {}
  const at::Tensor& in(std::size_t i) const { return slots_[inputs_[i]]; }
  // Outputs first, then scratch. Planned memory: write into it, do not
  // replace it, unless the lowering says `gives`.
  at::Tensor& out(std::size_t i = 0) const { return slots_[outputs_[i]]; }
  const Held& held_in(std::size_t i) const { return held_[inputs_[i]]; }
  Held& held_out(std::size_t i) const { return held_[outputs_[i]]; }

 private:
  at::Tensor* slots_;
  Held* held_;
  const std::uint32_t* inputs_;
  const std::uint32_t* outputs_;
};

using Kernel = std::function<void(const Args&)>;
// From the base tensor to a view of it. Runs on meta tensors while planning; an undefined result means that
// the base's layout cannot be viewed so (the kernel copies then).
using View = std::function<at::Tensor(const at::Tensor&)>;

// An output or a scratch buffer: row-major unless strides are given.
struct Layout {
  at::ScalarType dtype = at::kFloat;
  Sizes sizes;
  std::optional<Sizes> strides;
};

struct Lowering {
  std::vector<Layout> outputs;
  std::vector<Layout> scratch;  // alive during this instruction only
  Kernel kernel;                // null when the op only ever views or is constant
  // Makes output 0 again without drawing random numbers again. It gets the inputs of `kernel`, then the other
  // outputs that `kernel` has made. Null, of an op that draws: it runs once.
  Kernel again;
  std::vector<View> views;            // when not empty: output i is views[i](input 0)
  std::vector<at::Tensor> constants;  // when not empty: output i is this tensor, known while planning
  std::vector<std::size_t> in_place;  // inputs whose memory output 0 may take over (same layout required)
  bool gives = false;         // the kernel sets the outputs to tensors of its own, laid out as `outputs` says
  bool gives_absent = false;  // the kernel leaves outputs undefined that are zero and not there in eager
  bool takes_absent = false;  // inputs absent in eager may be undefined, else zero; needs keeps_inputs
  bool runs_absent = false;   // it runs where all inputs that it is linear in are absent: it may add its own
  bool keeps_inputs = false;  // the kernel may keep inputs beyond the instruction: no planned memory
  std::vector<std::size_t> unread;  // inputs that the kernel does not read: it finds undefined tensors there
  std::vector<fusion::Step>
      pointwise;         // what the kernel computes of each element, if several are to be fused
  std::size_t held = 0;  // outputs after `outputs` that are no tensors
};

// Thrown by a lowering that needs what only a run can tell: the contents
// of an input, or what a function returns.
class NeedsData : public c10::NotImplementedError {
 public:
  explicit NeedsData(const std::string& what) : NotImplementedError({__func__, __FILE__, __LINE__}, what) {}
};

// What a lowering may ask. Every question that cannot be answered throws
// c10::Error; the planner adds the node's name.
class LowerContext {
 public:
  // `metas`: meta tensors with each input's dtype, sizes and strides; `constants`: defined where the contents
  // are known. `recording`: whether a backward pass will follow.
  LowerContext(const graph::Node& node, std::vector<at::Tensor> metas, std::vector<at::Tensor> constants,
               bool recording = false)
      : node_(node), metas_(std::move(metas)), constants_(std::move(constants)), recording_(recording) {}
  // For running the node once, on these tensors: all is known, though what is on a device costs a wait for
  // it.
  LowerContext(const graph::Node& node, const std::vector<at::Tensor>& values, bool recording = false)
      : node_(node), metas_(values), constants_(values), recording_(recording), running_(true) {}
  // Per input: its contents on the host, where they are known without asking the device; else undefined.
  void set_known(const std::vector<at::Tensor>& known);
  // Per input: whether nothing but this node ever reads its memory; per
  // output: whether it is a result of the graph.
  void set_owners(std::vector<bool> exclusive, std::vector<bool> delivered) {
    exclusive_ = std::move(exclusive);
    delivered_ = std::move(delivered);
  }

  // Where the node will run, whatever device it names itself.
  void set_device(at::Device device) { device_ = device; }

  const graph::Node& node() const { return node_; }
  at::Device device() const { return device_; }
  bool recording() const { return recording_; }
  bool is_exclusive(std::size_t i) const { return i < exclusive_.size() && exclusive_[i]; }
  bool is_delivered(std::size_t i) const { return i >= delivered_.size() || delivered_[i]; }
  // Whether the inputs are the values themselves, so that nobody needs the outputs' layouts beforehand.
  bool running() const { return running_; }
  std::size_t num_inputs() const { return metas_.size(); }
  std::size_t num_outputs() const { return node_.outputs().size(); }
  bool has(std::size_t i) const { return i < metas_.size() && metas_[i].defined(); }
  const at::Tensor& meta(std::size_t i) const;
  Sizes sizes(std::size_t i) const { return meta(i).sizes().vec(); }
  std::int64_t rank(std::size_t i) const { return meta(i).dim(); }
  at::ScalarType dtype(std::size_t i) const { return meta(i).scalar_type(); }
  bool is_constant(std::size_t i) const { return i < constants_.size() && constants_[i].defined(); }
  // The contents of input i, on the host, which must be known while planning.
  const at::Tensor& constant(std::size_t i) const;
  Sizes ints(std::size_t i) const;
  double scalar(std::size_t i) const;
  // The ints of optional input i, or those of attribute `name` (older opsets), or nullopt.
  std::optional<Sizes> ints_or_attribute(std::size_t i, const char* name) const;

  std::int64_t int_attribute(const char* name, std::int64_t fallback) const {
    return node_.int_attribute(name, fallback);
  }
  double float_attribute(const char* name, double fallback) const {
    return node_.float_attribute(name, fallback);
  }
  std::string string_attribute(const char* name, const char* fallback) const {
    return node_.string_attribute(name, fallback);
  }
  // The constant attribute `name`, which has to be one number.
  double number_attribute(const char* name) const;
  // `axis` of an input of that rank, negative ones counted from the end.
  std::int64_t axis(std::int64_t axis, std::int64_t rank) const;
  // The same where PyTorch gives a 0-dim tensor one axis, 0: no index into its sizes.
  std::int64_t axis_or_scalar(std::int64_t axis, std::int64_t rank) const;

 private:
  const graph::Node& node_;
  std::vector<at::Tensor> metas_;
  at::Device device_ = at::kCPU;
  mutable std::vector<at::Tensor> constants_;  // those of a device come to the host when they are asked for
  std::vector<bool> exclusive_, delivered_;
  bool recording_ = false, running_ = false;
};

using Lower = Lowering (*)(const LowerContext&);

// Null when the session cannot run that op. All of the torch domain share one.
Lower find_lowering(std::string_view domain, std::string_view op_type);

struct OpRegistrar {
  OpRegistrar(std::string_view domain, std::string_view op_type, Lower lower);
};

// REKINDLE_OP("", "MatMul", lower_matmul);
#define REKINDLE_OP(domain, op_type, lower)                                                                  \
  static const ::rekindle::session::OpRegistrar REKINDLE_CONCAT(op_registrar_, __COUNTER__)(domain, op_type, \
                                                                                            lower)

// Helpers that several families share.
// Returns the first `count` inputs; absent ones are undefined.
Tensors inputs_of(const Args& args, std::size_t count);
Sizes broadcast_sizes(const Sizes& a, const Sizes& b);
std::int64_t product(const Sizes& sizes);
// One output, computed by `kernel`.
Lowering computed(at::ScalarType dtype, Sizes sizes, Kernel kernel, std::vector<std::size_t> in_place = {});
// What `function` returns for the inputs, in memory that it allocates (an absent input is an undefined
// tensor): one tensor an output, of which the last may be left out when the node has fewer. The layouts are
// those of a run on meta tensors, so that a function that looks at data has none before it runs;
// `sized_by_data` says that it is one.
using Function = std::function<Tensors(const Tensors& inputs)>;
Lowering functional(const LowerContext& context, Function function, bool sized_by_data = false);
// Runs a lowering once on given inputs, with newly allocated outputs: how constants are folded.
std::vector<at::Tensor> run_once(const Lowering& lowering, const std::vector<at::Tensor>& inputs);
// Lets output 0 begin as the sum so far, input `base`, whose memory it may have taken over.
void begin_with(const Args& args, std::size_t base);
// The bytes of a lowering's outputs.
std::size_t output_bytes(const Lowering& lowering);
// One output that is a view of input 0; copied where the layout does not allow it.
Lowering viewed(const LowerContext& context, Sizes sizes, View view);

}  // namespace rekindle::session
