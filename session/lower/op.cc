#include "session/lower/op.h"

#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <numeric>

#include "session/lower/placed.h"
#include "session/lower/plan_mismatch.h"
#include "session/lower/run_lowering.h"
#include "session/session.h"
#include "src/base/registry.h"
#include "src/graph/op_info.h"

namespace rekindle::session {
namespace {

Registry<Lower>& registry() {
  static Registry<Lower> instance;
  return instance;
}

}  // namespace

OpRegistrar::OpRegistrar(std::string_view domain, std::string_view op_type, Lower lower) {
  registry().add(graph::qualified_name(domain, op_type), lower);
}

Lower find_lowering(std::string_view domain, std::string_view op_type) {
  const Lower* found =
      registry().find(graph::qualified_name(domain, domain == graph::kTorchDomain ? "" : op_type));
  return found == nullptr ? nullptr : *found;
}

std::vector<std::string> supported_ops() { return registry().names(); }

const at::Tensor& LowerContext::meta(std::size_t i) const {
  TORCH_CHECK(has(i), "input ", i, " is missing");
  return metas_[i];
}

const at::Tensor& LowerContext::constant(std::size_t i) const {
  if (!is_constant(i))
    throw NeedsData(
        c10::str("input ", i, " must be known before the graph runs, but it is computed from data"));
  if (!constants_[i].is_cpu()) constants_[i] = constants_[i].cpu();
  return constants_[i];
}

void LowerContext::set_known(const std::vector<at::Tensor>& known) {
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (known[i].defined()) constants_[i] = known[i];
  }
}

Sizes LowerContext::ints(std::size_t i) const {
  const at::Tensor values = constant(i).to(at::kLong).contiguous();
  const auto* data = values.const_data_ptr<std::int64_t>();
  return {data, data + values.numel()};
}

double LowerContext::scalar(std::size_t i) const {
  TORCH_CHECK(constant(i).numel() == 1, "input ", i, " must be one number");
  return constant(i).item().toDouble();
}

std::optional<Sizes> LowerContext::ints_or_attribute(std::size_t i, const char* name) const {
  if (has(i)) return ints(i);
  if (node_.attribute(name) != nullptr) return node_.ints_attribute(name, {});
  return std::nullopt;
}

double LowerContext::number_attribute(const char* name) const {
  const graph::Attribute* attribute = node_.attribute(name);
  const auto* number = attribute == nullptr ? nullptr : std::get_if<graph::ConstantPtr>(attribute);
  TORCH_CHECK(number != nullptr && *number != nullptr && (*number)->numel() == 1, name, " is not a number");
  return graph::scalar_value(**number);
}

std::int64_t LowerContext::axis(std::int64_t axis, std::int64_t rank) const {
  const std::int64_t positive = axis < 0 ? axis + rank : axis;
  TORCH_CHECK(positive >= 0 && positive < rank, "axis ", axis, " is out of range for rank ", rank);
  return positive;
}

std::int64_t LowerContext::axis_or_scalar(std::int64_t axis, std::int64_t rank) const {
  return this->axis(axis, std::max<std::int64_t>(rank, 1));
}

Tensors inputs_of(const Args& args, std::size_t count) {
  Tensors inputs;
  for (std::size_t i = 0; i < count; ++i) inputs.push_back(args.in(i));
  return inputs;
}

Sizes broadcast_sizes(const Sizes& a, const Sizes& b) { return at::infer_size(a, b); }

std::int64_t product(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

Lowering computed(at::ScalarType dtype, Sizes sizes, Kernel kernel, std::vector<std::size_t> in_place) {
  Lowering lowering;
  lowering.outputs.push_back({dtype, std::move(sizes), std::nullopt});
  lowering.kernel = std::move(kernel);
  lowering.in_place = std::move(in_place);
  return lowering;
}

namespace {

// Row-major, in memory that no input shares.
at::Tensor owned(const at::Tensor& result, const std::vector<at::Tensor>& inputs) {
  const at::Tensor plain = result.resolve_conj().resolve_neg();
  const bool shared = std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor& input) {
    return input.defined() && plain.is_alias_of(input);
  });
  return shared ? plain.clone(at::MemoryFormat::Contiguous) : plain.contiguous();
}

// Gives one result for each of `planned`; `check`: whether they must have those layouts.
Kernel calling(Function function, std::size_t inputs, std::vector<Layout> planned, bool check) {
  return [function = std::move(function), inputs, planned = std::move(planned), check](const Args& args) {
    const Tensors given = inputs_of(args, inputs);
    const std::vector<at::Tensor> results = function(given);
    if (results.size() < planned.size())
      throw PlanMismatch(c10::str(results.size(), " results where ", planned.size(), " were planned"));
    for (std::size_t i = 0; i < planned.size(); ++i) {
      const at::Tensor& result = results[i];
      if (check && (result.sizes() != planned[i].sizes || result.scalar_type() != planned[i].dtype)) {
        throw PlanMismatch(c10::str("result ", i, " is ", result.toString(), result.sizes(), " where ",
                                    planned[i].dtype, at::IntArrayRef(planned[i].sizes), " was planned"));
      }
      args.out(i) = owned(results[i], given);
    }
  };
}

}  // namespace

Lowering functional(const LowerContext& context, Function function, bool sized_by_data) {
  Lowering lowering;
  lowering.gives = context.running() || !can_place(context.device());
  const std::size_t inputs = context.num_inputs(), outputs = context.num_outputs();
  if (sized_by_data && !context.running()) {
    std::vector<at::Tensor> constants;
    for (std::size_t i = 0; i < inputs; ++i) {
      if (context.has(i) && !context.is_constant(i))
        throw NeedsData(c10::str("the sizes of its results depend on the data of input ", i));
      constants.push_back(context.has(i) ? context.constant(i) : at::Tensor());
    }
    lowering.constants = function(constants);
    return lowering;
  }
  if (context.running()) {
    lowering.outputs.resize(outputs, Layout{at::kByte, {0}, {}});
  } else {
    std::vector<at::Tensor> metas;
    for (std::size_t i = 0; i < inputs; ++i) metas.push_back(context.has(i) ? context.meta(i) : at::Tensor());
    for (const at::Tensor& result : function(metas)) {
      if (lowering.outputs.size() < outputs)
        lowering.outputs.push_back({result.scalar_type(), result.sizes().vec(), {}});
    }
  }
  lowering.kernel = lowering.gives
                        ? calling(std::move(function), inputs, lowering.outputs, !context.running())
                        : placed(
                              [function = std::move(function), inputs, outputs](const Args& args) {
                                Tensors results = function(inputs_of(args, inputs));
                                results.resize(std::min(results.size(), outputs));
                                return results;
                              },
                              lowering.outputs, {}, context.node().op_type());
  return lowering;
}

std::vector<at::Tensor> run_once(const Lowering& lowering, const std::vector<at::Tensor>& inputs) {
  return run_lowering(lowering, inputs, {}).tensors;
}

void begin_with(const Args& args, std::size_t base) {
  if (args.out().const_data_ptr() != args.in(base).const_data_ptr()) args.out().copy_(args.in(base));
}

std::size_t output_bytes(const Lowering& lowering) {
  std::size_t bytes = 0;
  for (const Layout& layout : lowering.outputs) {
    bytes += static_cast<std::size_t>(product(layout.sizes)) * c10::elementSize(layout.dtype);
  }
  for (const at::Tensor& constant : lowering.constants) bytes += constant.nbytes();
  return bytes;
}

Lowering viewed(const LowerContext& context, Sizes sizes, View view) {
  // The copy for layouts that cannot be viewed: the output, seen in the
  // input's shape, takes the input's elements.
  Lowering lowering = computed(context.dtype(0), std::move(sizes), [](const Args& args) {
    args.out().view(args.in(0).sizes()).copy_(args.in(0));
  });
  lowering.views.push_back(std::move(view));
  return lowering;
}

}  // namespace rekindle::session
