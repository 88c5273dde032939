// Operators of PyTorch's dispatcher and their gradients: PyTorch runs them, allocates their results and differentiates
// them. Layouts are those that the graph records, or else those of a run on meta tensors; a result that comes in
// another layout is copied.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include "session/op.h"
#include "session/tensor_types.h"
#include "session/tape.h"
#include "session/torch_operator.h"
#include "src/graph/torch_node.h"

namespace rekindle::session {
namespace {

Layout layout_of(const at::Tensor& tensor) {
  const bool dense = tensor.is_non_overlapping_and_dense();
  return {tensor.scalar_type(), tensor.sizes().vec(), dense ? std::optional(tensor.strides().vec()) : std::nullopt};
}

at::Tensor meta_of(const graph::TensorType& type, std::optional<Sizes> strides) {
  const auto options = at::TensorOptions().dtype(scalar_type_of(type.dtype)).device(at::kMeta);
  const Sizes sizes = *type.static_sizes();
  return strides ? at::empty_strided(sizes, *strides, options) : at::empty(sizes, options);
}

bool is_recorded(const graph::TensorType& type) {
  return type.static_sizes().has_value() && type.dtype != graph::DType::kUndefined && type.dtype != graph::DType::kString;
}

// Whether the types that the graph records for the node's inputs are those of the inputs here.
bool inputs_are_recorded(const LowerContext& context) {
  for (std::size_t i = 0; i < context.num_inputs(); ++i) {
    if (!context.has(i)) continue;
    const graph::TensorType& type = context.node().input(i)->type();
    if (type.static_sizes() != context.sizes(i) || type.dtype != dtype_of(context.dtype(i))) return false;
  }
  return true;
}

// The results' strides, one after another, in the attribute _strides; row-major where they are not recorded.
std::optional<Sizes> recorded_strides(const Sizes& all, std::size_t& next, std::size_t rank) {
  if (all.size() - next < rank) return std::nullopt;
  const Sizes strides(all.begin() + static_cast<std::ptrdiff_t>(next), all.begin() + static_cast<std::ptrdiff_t>(next + rank));
  next += rank;
  const bool sane = std::all_of(strides.begin(), strides.end(), [](std::int64_t stride) { return stride >= 0; });
  return sane ? std::optional(strides) : std::nullopt;
}

// What the export saw, when it was for these inputs: asking PyTorch's meta kernels first loads seconds of Python code.
std::optional<std::vector<Layout>> recorded_layouts(const LowerContext& context) {
  if (!inputs_are_recorded(context)) return std::nullopt;
  const Sizes all = context.node().ints_attribute("_strides", {});
  std::vector<Layout> layouts;
  std::size_t next = 0;
  for (std::size_t i = 0; i < graph::torch_results(context.node()); ++i) {
    const graph::TensorType& type = context.node().output(i)->type();
    if (!is_recorded(type)) return std::nullopt;
    layouts.push_back(layout_of(meta_of(type, recorded_strides(all, next, type.dims->size()))));
  }
  return layouts;
}

std::vector<Layout> computed_layouts(const LowerContext& context, const TorchOperator& op) {
  std::vector<at::Tensor> metas;
  for (std::size_t i = 0; i < context.num_inputs(); ++i) metas.push_back(context.has(i) ? context.meta(i) : at::Tensor());
  std::vector<Layout> layouts;
  for (const at::Tensor& result : op.call_meta(metas)) {
    TORCH_CHECK_NOT_IMPLEMENTED(result.defined() && result.layout() == at::kStrided, context.node().op_type(),
                                " returns no dense tensor");
    layouts.push_back(layout_of(result));
  }
  TORCH_CHECK(layouts.size() == graph::torch_results(context.node()), context.node().op_type(), " returns ", layouts.size(),
              " tensors, not ", graph::torch_results(context.node()));
  return layouts;
}

std::vector<at::Tensor> inputs_of(const Args& args, std::size_t count) {
  std::vector<at::Tensor> inputs;
  for (std::size_t i = 0; i < count; ++i) inputs.push_back(args.in(i));
  return inputs;
}

// `tensor` in memory of its own with the planned layout. `shared`: its memory has other owners.
at::Tensor settled(at::Tensor tensor, const Layout& planned, bool shared, const std::string& name) {
  TORCH_CHECK(tensor.defined() && tensor.layout() == at::kStrided, name, " returned no dense tensor");
  TORCH_CHECK(tensor.scalar_type() == planned.dtype && tensor.sizes() == planned.sizes, name, " returned ",
              tensor.toString(), tensor.sizes(), " where ", planned.dtype, at::IntArrayRef(planned.sizes), " was planned");
  tensor = tensor.resolve_conj().resolve_neg();
  const Sizes strides = planned.strides.value_or(c10::TensorType::contiguousStridesOf(planned.sizes));
  if (!shared && tensor.strides() == strides && tensor.storage_offset() == 0) return tensor;
  return at::empty_strided(planned.sizes, strides, tensor.options()).copy_(tensor);
}

bool shares_memory(const at::Tensor& tensor, const std::vector<at::Tensor>& others) {
  return tensor.has_storage() && std::any_of(others.begin(), others.end(), [&](const at::Tensor& other) {
           return other.defined() && other.has_storage() && tensor.is_alias_of(other);
         });
}

void give(const Args& args, const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& inputs,
          const std::vector<Layout>& planned, const std::string& name) {
  TORCH_CHECK(results.size() == planned.size(), name, " returned ", results.size(), " tensors where ", planned.size(),
              " were planned");
  for (std::size_t i = 0; i < results.size(); ++i) {
    const bool shared = results[i].defined() && shares_memory(results[i], inputs);
    args.out(i) = settled(results[i], planned[i], shared, name);
  }
}

Lowering lower_torch(const LowerContext& context) {
  const graph::Node& node = context.node();
  const auto op = std::make_shared<const TorchOperator>(node);
  Lowering lowering;
  std::optional<std::vector<Layout>> recorded = recorded_layouts(context);
  lowering.outputs = recorded ? *std::move(recorded) : computed_layouts(context, *op);
  lowering.gives = true;
  lowering.held = graph::has_tape(node) ? 1 : 0;
  lowering.keeps_inputs = lowering.held == 1 && context.recording();
  const std::size_t count = context.num_inputs();
  if (!lowering.keeps_inputs) {
    lowering.kernel = [op, count, planned = lowering.outputs, name = node.op_type()](const Args& args) {
      const std::vector<at::Tensor> inputs = inputs_of(args, count);
      give(args, op->call(inputs), inputs, planned, name);
    };
    return lowering;
  }
  lowering.kernel = [op, count, planned = lowering.outputs, name = node.op_type(),
                     tracked = node.ints_attribute("_tracked", {})](const Args& args) {
    const std::vector<at::Tensor> inputs = inputs_of(args, count);
    std::shared_ptr<Tape> tape;
    give(args, Tape::record(*op, inputs, tracked, tape), inputs, planned, name);
    args.held_out(planned.size()) = std::move(tape);
  };
  return lowering;
}

// Inputs: a cotangent a result, the tape, the tracked inputs*. Outputs: the gradients of the tracked inputs.
Lowering lower_torch_gradient(const LowerContext& context) {
  const std::size_t results = graph::gradient_cotangents(context.node());
  Lowering lowering;
  for (std::size_t i = 0; i < context.num_outputs(); ++i) lowering.outputs.push_back(layout_of(context.meta(results + 1 + i)));
  lowering.gives = true;
  const std::string name = "the gradient of " + context.node().input(results)->producer()->op_type();
  lowering.kernel = [results, planned = lowering.outputs, name](const Args& args) {
    const auto* tape = static_cast<const Tape*>(args.held_in(results).get());
    TORCH_CHECK(tape != nullptr, name, " needs a tape that was not recorded");
    const std::vector<at::Tensor> cotangents = inputs_of(args, results);
    const auto given = std::find_if(cotangents.begin(), cotangents.end(), [](const at::Tensor& x) { return x.defined(); });
    TORCH_CHECK(given != cotangents.end(), name, " has no cotangent");
    const at::TensorOptions options = given->options();
    std::vector<at::Tensor> gradients = tape->backward(cotangents);
    TORCH_CHECK(gradients.size() == planned.size(), name, " has ", gradients.size(), " parts where ", planned.size(),
                " were planned");
    for (std::size_t i = 0; i < planned.size(); ++i) {
      at::Tensor gradient = std::move(gradients[i]);
      if (!gradient.defined()) gradient = at::zeros(planned[i].sizes, options.dtype(planned[i].dtype));
      // A gradient can be a view of a cotangent, or the same for two inputs; whoever gets it may write to it.
      const bool shared = gradient.use_count() > 1 || (gradient.has_storage() && gradient.storage().use_count() > 1);
      args.out(i) = settled(std::move(gradient), planned[i], shared, name);
    }
  };
  return lowering;
}

}  // namespace

REKINDLE_OP("torch", "", lower_torch);
REKINDLE_OP("rekindle", "TorchGradient", lower_torch_gradient);

}  // namespace rekindle::session
