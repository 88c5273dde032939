#include "session/ops/host.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include "session/host_function.h"
#include "session/lower/recorded_results.h"
#include "session/lower/tensor_types.h"
#include "session/run/host_tape.h"
#include "src/graph/torch_node.h"

namespace rekindle::session {
namespace {

Layout layout_of(const at::Tensor& meta) {
  return {meta.scalar_type(), meta.sizes().vec(), meta.strides().vec()};
}

// What has gaps or overlaps is planned row-major instead.
at::Tensor dense_like(const at::Tensor& meta) {
  return meta.is_non_overlapping_and_dense() ? meta : at::empty(meta.sizes(), meta.options());
}

// `tensor` as planned, if it is: copied when it is laid out otherwise, or when `copy` says so.
at::Tensor settled(at::Tensor tensor, const at::Tensor& planned, bool copy) {
  tensor = tensor.resolve_conj().resolve_neg();
  if (!planned.defined()) {
    if (copy) return tensor.clone(at::MemoryFormat::Contiguous);
    return tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
  }
  if (!copy && tensor.strides() == planned.strides()) return tensor;
  return at::empty_strided(planned.sizes(), planned.strides(), tensor.options()).copy_(tensor);
}

// Undefined ones where a call may return any size: no plan is made for what it does.
std::vector<at::Tensor> planned_results(const LowerContext& context, std::int64_t function) {
  const std::size_t results = graph::torch_results(context.node());
  if (context.running()) return std::vector<at::Tensor>(results);
  if (graph::is_sized_by_data(context.node()))
    throw NeedsData("the sizes of what a function returns depend on data");
  if (auto recorded = recorded_results(context)) return *std::move(recorded);
  std::vector<at::Tensor> metas;
  for (std::size_t i = 0; i < context.num_inputs(); ++i)
    metas.push_back(context.has(i) ? context.meta(i) : at::Tensor());
  auto inferred = HostScope::function(function).infer(metas);
  TORCH_CHECK_NOT_IMPLEMENTED(inferred.has_value(),
                              "what a function returns for inputs of other sizes than at its export is "
                              "not known; register it with infer_shape");
  TORCH_CHECK(inferred->size() == results, "infer_shape gave ", inferred->size(), " tensors, not ", results);
  return *std::move(inferred);
}

HostPlace place_of(const graph::Node& node, at::Device device) {
  HostPlace place;
  place.tracked = node.ints_attribute("_tracked", {});
  place.needs = node.ints_attribute("_needs", {});
  place.differentiable = node.ints_attribute("_differentiable", {});
  place.grad = node.int_attribute("_grad_there", 0) != 0;
  place.device = device.type();
  for (std::size_t i = 0; i < node.inputs().size(); ++i) {
    if (node.input(i) != nullptr && node.input(i)->producer() == nullptr)
      place.lasting.push_back(static_cast<std::int64_t>(i));
  }
  if (const auto dtypes = node.ints_attribute("_autocast_there", {}); !dtypes.empty()) {
    std::optional<at::ScalarType> dtype;
    if (dtypes[0] != 0) dtype = scalar_type_of(static_cast<graph::DType>(dtypes[0]));
    place.autocast = dtype;
  }
  return place;
}

// One call of the node: which inputs it writes to are copied, unless it may have them.
struct Call {
  std::int64_t function = 0;
  std::vector<bool> exclusive;  // per input: nothing else reads it
  std::vector<at::Tensor> planned;
  std::vector<at::ScalarType> dtypes;  // per result
  HostPlace place;

  void run(const Args& args, bool record) const {
    HostFunction& callee = HostScope::function(function);
    std::vector<at::Tensor> inputs;
    std::vector<bool> own(exclusive.size(), false);
    std::optional<at::Device> device;
    for (std::size_t i = 0; i < exclusive.size(); ++i) {
      inputs.push_back(args.in(i));
      if (!device && inputs[i].defined()) device = inputs[i].device();
      if (!inputs[i].defined() || !callee.writes(i) || (exclusive[i] && callee.may_overwrite(i))) continue;
      inputs[i] = inputs[i].clone();
      own[i] = true;
    }
    HostResults results;
    if (record) {
      std::shared_ptr<HostTape> tape;
      bool writes = false;
      for (std::size_t i = 0; i < inputs.size(); ++i) writes = writes || callee.writes(i);
      results = callee.recomputes() && !writes
                    ? HostTape::postpone(HostScope::owner(function), std::move(inputs), planned, place, tape)
                    : HostTape::record(callee, std::move(inputs), own, planned, place, tape);
      args.held_out(planned.size()) = std::move(tape);
    } else {
      results = HostTape::run(callee, std::move(inputs), own, planned, place);
    }
    TORCH_CHECK(results.tensors.size() == planned.size(), "a function returned ", results.tensors.size(),
                " tensors where ", planned.size(), " were planned");
    for (std::size_t i = 0; i < planned.size(); ++i) {
      TORCH_CHECK(results.tensors[i].scalar_type() == dtypes[i], "a function returned ",
                  results.tensors[i].toString(), " where ", dtypes[i], " was exported");
      TORCH_CHECK(!device || results.tensors[i].device() == *device, "a function returned a tensor on ",
                  results.tensors[i].device(), ", it was given tensors on ", *device);
      args.out(i) = settled(results.tensors[i].detach(), planned[i], results.copy[i]);
    }
  }
};

// What gradients a backward gives, and which of them leave the graph: others may own their memory only.
struct Gradients {
  std::size_t results = 0;
  std::vector<at::Tensor> planned;
  std::vector<bool> delivered;

  void run(const Args& args) const {
    const auto* tape = static_cast<const HostTape*>(args.held_in(results).get());
    TORCH_CHECK(tape != nullptr, "the gradient of a function needs a tape that was not recorded");
    std::vector<at::Tensor> cotangents;
    for (std::size_t i = 0; i < results; ++i) {  // one that is absent may have its layout there
      const at::Tensor& cotangent = args.in(i);
      cotangents.push_back(cotangent.defined() && cotangent.is_meta() ? at::Tensor() : cotangent);
    }
    std::vector<at::Tensor> gradients = tape->backward(cotangents);
    TORCH_CHECK(gradients.size() == planned.size(), "a function has ", gradients.size(), " gradients where ",
                planned.size(), " were planned");
    for (std::size_t i = 0; i < planned.size(); ++i) {
      at::Tensor gradient = std::move(gradients[i]);
      args.out(i) = at::Tensor();
      if (!gradient.defined()) continue;
      // It can be a cotangent, or the same for two inputs; whoever gets it from the graph may write to it.
      const bool shared = delivered[i] && (gradient.use_count() > 1 || gradient.storage().use_count() > 1);
      args.out(i) = settled(gradient.detach(), planned[i], shared);
    }
  }
};

}  // namespace

Lowering lower_host(const LowerContext& context) {
  const graph::Node& node = context.node();
  Call call;
  call.function = node.int_attribute("function", -1);
  call.planned = planned_results(context, call.function);
  for (std::size_t i = 0; i < call.planned.size(); ++i) {
    const HostFunction* callee = HostScope::find(call.function);
    if (call.planned[i].defined() && (callee == nullptr || !callee->reuses(i)))
      call.planned[i] = dense_like(call.planned[i]);
  }
  for (std::size_t i = 0; i < call.planned.size(); ++i) {
    const at::Tensor& planned = call.planned[i];
    call.dtypes.push_back(planned.defined() ? planned.scalar_type()
                                            : scalar_type_of(node.output(i)->type().dtype));
  }
  call.place = place_of(node, context.device());
  for (std::size_t i = 0; i < context.num_inputs(); ++i) call.exclusive.push_back(context.is_exclusive(i));
  Lowering lowering;
  for (const at::Tensor& planned : call.planned)
    lowering.outputs.push_back(planned.defined() ? layout_of(planned) : Layout{});
  lowering.gives = true;
  lowering.keeps_inputs = true;  // whoever is called may keep what it is given
  lowering.held = graph::has_tape(node) ? 1 : 0;
  const bool record = lowering.held == 1 && context.recording();
  lowering.kernel = [call = std::move(call), record](const Args& args) { call.run(args, record); };
  return lowering;
}

// Inputs: a cotangent a result, the tape, the tracked inputs*. Outputs: the gradients of the tracked inputs.
Lowering lower_host_gradient(const LowerContext& context) {
  Gradients gradients;
  gradients.results = graph::gradient_cotangents(context.node());
  Lowering lowering;
  for (std::size_t i = 0; i < context.num_outputs(); ++i) {
    const at::Tensor meta = dense_like(context.meta(gradients.results + 1 + i));
    gradients.planned.push_back(meta);
    gradients.delivered.push_back(context.is_delivered(i));
    lowering.outputs.push_back(layout_of(meta));
  }
  lowering.gives = true;
  lowering.keeps_inputs = true;
  lowering.gives_absent = true;
  lowering.takes_absent = true;
  lowering.runs_absent = true;
  lowering.kernel = [gradients = std::move(gradients)](const Args& args) { gradients.run(args); };
  return lowering;
}

}  // namespace rekindle::session
