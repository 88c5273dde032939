// Operators of PyTorch's dispatcher and their gradients: PyTorch runs them, allocates their results (on the
// CPU in memory of the plan, where it can be) and differentiates them. Layouts are those that the graph
// records, or else those of a run on meta tensors; a result that comes in another layout is copied.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "session/lower/attention_mask.h"
#include "session/lower/op.h"
#include "session/lower/placed.h"
#include "session/lower/plan_mismatch.h"
#include "session/lower/recorded_results.h"
#include "session/lower/settled.h"
#include "session/lower/tensor_types.h"
#include "session/lower/torch_operator.h"
#include "session/ops/host.h"
#include "session/run/tape.h"
#include "src/graph/torch_node.h"

namespace rekindle::session {
namespace {

std::optional<std::vector<Layout>> recorded_layouts(const LowerContext& context) {
  const auto metas = recorded_results(context);
  if (!metas) return std::nullopt;
  std::vector<Layout> layouts;
  for (const at::Tensor& meta : *metas) layouts.push_back(layout_of(meta));
  return layouts;
}

std::vector<Layout> computed_layouts(const LowerContext& context, const TorchOperator& op) {
  std::vector<at::Tensor> metas;
  for (std::size_t i = 0; i < context.num_inputs(); ++i)
    metas.push_back(context.has(i) ? context.meta(i) : at::Tensor());
  for (const std::size_t i : op.number_inputs()) metas.at(i) = context.constant(i);
  std::vector<Layout> layouts;
  for (const at::Tensor& result : op.call_meta(metas)) {
    TORCH_CHECK_NOT_IMPLEMENTED(result.defined() && result.layout() == at::kStrided, context.node().op_type(),
                                " returns no dense tensor");
    layouts.push_back(layout_of(result));
  }
  TORCH_CHECK(layouts.size() == graph::torch_results(context.node()), context.node().op_type(), " returns ",
              layouts.size(), " tensors, not ", graph::torch_results(context.node()));
  const auto autocast = context.node().ints_attribute("_autocast", {});
  for (std::size_t i = 0; i < layouts.size() && i + 1 < autocast.size(); ++i)
    layouts[i].dtype = scalar_type_of(static_cast<graph::DType>(autocast[i + 1]));
  return layouts;
}

std::vector<Layout> layouts_of(const LowerContext& context, const TorchOperator& op) {
  if (graph::is_sized_by_data(context.node()))
    throw NeedsData(c10::str("the sizes of what ", context.node().op_type(), " returns depend on data"));
  std::optional<std::vector<Layout>> recorded = recorded_layouts(context);
  return recorded ? *std::move(recorded) : computed_layouts(context, op);
}

bool shares_memory(const at::Tensor& tensor, const std::vector<at::Tensor>& others) {
  return tensor.has_storage() && std::any_of(others.begin(), others.end(), [&](const at::Tensor& other) {
           return other.defined() && other.has_storage() && tensor.is_alias_of(other);
         });
}

// What give() needs to know of a node.
struct Results {
  std::string name;
  std::size_t count;
  std::vector<Layout> planned;  // none: they are taken as they come
  std::vector<bool> unused;     // these may have another layout than planned

  explicit Results(const graph::Node& node, std::vector<Layout> layouts)
      : name(node.op_type()),
        count(graph::torch_results(node)),
        planned(std::move(layouts)),
        unused(planned.size(), false) {
    for (const std::int64_t i : node.ints_attribute("_unused", {})) {
      if (i >= 0 && static_cast<std::size_t>(i) < unused.size()) unused[static_cast<std::size_t>(i)] = true;
    }
  }
  bool fits(const at::Tensor& tensor, std::size_t i) const {
    return tensor.defined() && tensor.scalar_type() == planned[i].dtype && tensor.sizes() == planned[i].sizes;
  }
};

// Of a node that is lowered when it runs. A result may share an input's memory.
void give_as_they_are(const Args& args, const std::vector<at::Tensor>& results, const Results& to) {
  TORCH_CHECK(results.size() == to.count, to.name, " returned ", results.size(), " tensors where ", to.count,
              " were exported");
  for (std::size_t i = 0; i < results.size(); ++i) {
    TORCH_CHECK(results[i].defined() && results[i].layout() == at::kStrided, to.name,
                " returned no dense tensor");
    args.out(i) = results[i].resolve_conj().resolve_neg();
    if (!args.out(i).is_non_overlapping_and_dense()) args.out(i) = args.out(i).contiguous();
  }
}

void give(const Args& args, const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& inputs,
          const Results& to) {
  if (to.planned.empty()) return give_as_they_are(args, results, to);
  if (results.size() != to.planned.size()) {
    throw PlanMismatch(c10::str(to.name, " returned ", results.size(), " tensors where ", to.planned.size(),
                                " were planned"));
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (to.unused[i] && !to.fits(results[i], i)) {
      args.out(i) =
          at::zeros(to.planned[i].sizes, at::TensorOptions(to.planned[i].dtype).device(results[0].device()));
      continue;
    }
    const bool shared = results[i].defined() && shares_memory(results[i], inputs);
    args.out(i) = settled(results[i], to.planned[i], shared, to.name);
  }
}

// The inputs of an operator. Numbers that are known come from the host: on a device, each call would wait for
// them.
class OperatorInputs {
 public:
  OperatorInputs(const LowerContext& context, const TorchOperator& op) : count_(context.num_inputs()) {
    for (const std::size_t i : op.number_inputs()) {
      if (context.is_constant(i)) numbers_.emplace_back(i, context.constant(i));
    }
  }
  std::vector<at::Tensor> of(const Args& args) const {
    std::vector<at::Tensor> inputs = inputs_of(args, count_);
    for (const auto& [i, numbers] : numbers_) inputs[i] = numbers;
    return inputs;
  }

 private:
  std::size_t count_;
  std::vector<std::pair<std::size_t, at::Tensor>> numbers_;
};

// Lets attention on an accelerator do without a mask that is known, as eager's does. Returns which inputs it
// then leaves unread.
std::vector<std::size_t> leave_mask_out(const LowerContext& context, TorchOperator& op) {
  constexpr std::size_t kMask = 3;  // of query, key, value, attn_mask?
  if (context.node().op_type() != "aten.scaled_dot_product_attention.default" || context.device().is_cpu() ||
      context.running() || !context.is_constant(kMask) || context.int_attribute("is_causal", 0) != 0)
    return {};
  const KnownMask known =
      known_mask(context.constant(kMask), context.meta(0).size(-2), context.meta(1).size(-2));
  if (known == KnownMask::kOther) return {};
  op.replace("attn_mask", c10::IValue());
  if (known == KnownMask::kCausal) op.replace("is_causal", true);
  return {kMask};
}

Lowering lower_torch(const LowerContext& context) {
  const graph::Node& node = context.node();
  if (node.op_type() == graph::kCallHost) return lower_host(context);
  const auto op = std::make_shared<TorchOperator>(node, context.device());
  Lowering lowering;
  lowering.unread = leave_mask_out(context, *op);
  if (!context.running()) lowering.outputs = layouts_of(context, *op);
  const Results to(node, lowering.outputs);
  lowering.outputs.resize(to.count);
  lowering.held = graph::has_tape(node) ? 1 : 0;
  lowering.keeps_inputs = lowering.held == 1 && context.recording();
  const OperatorInputs gathered(context, *op);
  // A library's own operators may keep what they return.
  if (lowering.held == 0 && !context.running() && can_place(context.device()) &&
      node.op_type().starts_with("aten.")) {
    lowering.kernel = placed([op, gathered](const Args& args) { return op->call(gathered.of(args)); },
                             to.planned, to.unused, to.name);
    return lowering;
  }
  lowering.gives = true;
  if (!lowering.keeps_inputs) {
    lowering.kernel = [op, gathered, to](const Args& args) {
      const std::vector<at::Tensor> inputs = gathered.of(args);
      give(args, op->call(inputs), inputs, to);
    };
    return lowering;
  }
  lowering.kernel = [op, gathered, to, tracked = node.ints_attribute("_tracked", {})](const Args& args) {
    const std::vector<at::Tensor> inputs = gathered.of(args);
    std::shared_ptr<Tape> tape;
    give(args, Tape::record(*op, inputs, tracked, tape), inputs, to);
    args.held_out(to.count) = std::move(tape);
  };
  return lowering;
}

// Of the gradient of input i. On an accelerator, that of a part of a tensor, such as a head of attention, has
// its dimensions in the input's order, as kernels make it there.
Layout layout_of_gradient(const LowerContext& context, std::size_t i) {
  const at::Tensor& input = context.meta(i);
  const bool is_as_input = context.device().is_cpu() || input.is_non_overlapping_and_dense();
  return layout_of(is_as_input ? input : at::empty_like(input));
}

// Inputs: a cotangent a result, the tape, the tracked inputs*. Outputs: the gradients of the tracked inputs.
Lowering lower_torch_gradient(const LowerContext& context) {
  const std::size_t results = graph::gradient_cotangents(context.node());
  if (graph::is_host_gradient(context.node())) return lower_host_gradient(context);
  Lowering lowering;
  for (std::size_t i = 0; i < context.num_outputs(); ++i) {
    lowering.outputs.push_back(layout_of_gradient(context, results + 1 + i));
  }
  lowering.gives = true;
  lowering.gives_absent = true;
  const std::string name = "the gradient of " + context.node().input(results)->producer()->op_type();
  lowering.kernel = [results, planned = lowering.outputs, name](const Args& args) {
    const auto* tape = static_cast<const Tape*>(args.held_in(results).get());
    TORCH_CHECK(tape != nullptr, name, " needs a tape that was not recorded");
    const std::vector<at::Tensor> cotangents = inputs_of(args, results);
    const auto given =
        std::find_if(cotangents.begin(), cotangents.end(), [](const at::Tensor& x) { return x.defined(); });
    TORCH_CHECK(given != cotangents.end(), name, " has no cotangent");
    std::vector<at::Tensor> gradients = tape->backward(cotangents);
    TORCH_CHECK(gradients.size() == planned.size(), name, " has ", gradients.size(), " parts where ",
                planned.size(), " were planned");
    for (std::size_t i = 0; i < planned.size(); ++i) {
      at::Tensor gradient = std::move(gradients[i]);
      args.out(i) =
          gradient.defined() ? settled_gradient(std::move(gradient), planned[i], name) : at::Tensor();
    }
  };
  return lowering;
}

}  // namespace

REKINDLE_OP("torch", "", lower_torch);
REKINDLE_OP("rekindle", "TorchGradient", lower_torch_gradient);

}  // namespace rekindle::session
