#include "session/lower/infer_types.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <vector>

#include "session/lower/op.h"
#include "session/lower/tensor_types.h"
#include "session/lower/trial_sizes.h"
#include "src/graph/op_info.h"
#include "src/graph/text/print.h"
#include "src/graph/torch_node.h"

namespace rekindle::session {
namespace {

// Shape arithmetic is small; larger constants are not needed to tell a shape.
constexpr std::size_t kMaxComputedBytes = 4096;

// Far from each other and from usual sizes: what is the same at both does not depend on a symbol.
constexpr std::int64_t kSmall = 3, kLarge = 10007;
// In the three runs, and not a size of any symbol there. The first, which gives ranks, is 8!, so that views
// of it by a batch, or by heads, are right.
constexpr std::array<std::int64_t, 3> kDataSizes{40320, 7, 20011};

// No input may have more elements than this at the sizes that are tried:
// its bytes have to be a number of 63 bits.
constexpr double kMaxElements = 1e17;

struct Known {
  at::Tensor meta, constant;
};

using Types = std::unordered_map<const graph::Value*, Known>;
using Symbols = std::map<std::string, std::int64_t>;

// One run through the graph, for given sizes of inputs.
class Inference {
 public:
  // asks_torch: whether PyTorch's meta kernels may be asked; loading them takes a while, and some
  // run a loop over a size. data_size: in the place of every size that depends on data; without one,
  // what has such sizes stays unknown.
  Inference(const graph::Graph& graph, bool asks_torch, std::optional<std::int64_t> data_size = std::nullopt)
      : graph_(graph), asks_torch_(asks_torch), data_size_(data_size) {}

  void set_inputs(const Symbols& symbols) {
    for (const graph::Value* input : graph_.inputs()) {
      const auto sizes = sizes_of(input->type(), symbols);
      if (sizes && input->type().dtype != graph::DType::kUndefined) {
        known_[input].meta = meta(scalar_type_of(input->type().dtype), *sizes);
      }
    }
  }

  void set_input(std::size_t i, const at::Tensor& like) {
    known_[graph_.inputs().at(i)].meta = meta(like.scalar_type(), like.sizes().vec());
  }

  Types run() {
    for (const auto& node : graph_.nodes()) {
      try {
        visit(*node);
      } catch (const c10::Error& error) {
        // The planner will meet the same error with real inputs, and reports it with the node's name.
        if (first_error_.empty())
          first_error_ = graph::describe(*node) + ": " + error.what_without_backtrace();
      }
    }
    return std::move(known_);
  }

  const std::string& first_error() const { return first_error_; }

 private:
  static at::Tensor meta(at::ScalarType type, const Sizes& sizes) {
    return at::empty(sizes, at::TensorOptions().dtype(type).device(at::kMeta));
  }

  static std::optional<Sizes> sizes_of(const graph::TensorType& type, const Symbols& symbols) {
    if (!type.dims) return std::nullopt;
    Sizes sizes;
    for (const graph::Dim& dim : *type.dims) {
      const auto symbol = symbols.find(dim.symbol);
      if (!dim.is_static() && symbol == symbols.end()) return std::nullopt;
      sizes.push_back(dim.is_static() ? dim.size : symbol->second);
    }
    return sizes;
  }

  void visit(const graph::Node& node) {
    const Lower lower = find_lowering(node.domain(), node.op_type());
    if (lower == nullptr) return;
    std::vector<at::Tensor> metas, constants;
    bool all_constant = !graph::is_random(node);
    const bool is_recurrence = data_size_ && is_packed_recurrence(node);
    for (const graph::Value* input : node.inputs()) {
      const auto found = known_.find(input);
      const bool is_known = found != known_.end();
      if (input != nullptr && !is_known && !is_recurrence) return;
      metas.push_back(is_known ? found->second.meta : at::Tensor());
      constants.push_back(is_known ? found->second.constant : at::Tensor());
      all_constant = all_constant && (input == nullptr || constants.back().defined());
    }
    if (is_recurrence || (data_size_ && graph::is_sized_by_data(node))) {
      const auto results = results_of_size(node, metas, *data_size_);
      for (std::size_t i = 0; results && i < results->size(); ++i)
        define(node.output(i), {(*results)[i], {}});
      return;
    }
    if (graph::is_torch(node) && !all_constant && !asks_torch_) return;
    const Lowering lowering = lower(LowerContext(node, std::move(metas), constants));
    if (!lowering.constants.empty() || (all_constant && output_bytes(lowering) <= kMaxComputedBytes)) {
      const std::vector<at::Tensor> values = run_once(lowering, constants);
      for (std::size_t i = 0; i < std::min(node.outputs().size(), values.size()); ++i)
        define(node.output(i), {meta(values[i].scalar_type(), values[i].sizes().vec()), values[i]});
      return;
    }
    for (std::size_t i = 0; i < std::min(node.outputs().size(), lowering.outputs.size()); ++i) {
      const Layout& layout = lowering.outputs[i];  // none of a tape
      define(node.output(i), {meta(layout.dtype, layout.sizes), {}});
    }
  }

  void define(const graph::Value* value, Known known) { known_[value] = std::move(known); }

  const graph::Graph& graph_;
  const bool asks_torch_;
  const std::optional<std::int64_t> data_size_;
  Types known_;
  std::string first_error_;
};

// Distinct sizes, from `least` on, that no arithmetic of a model mistakes for one another.
Symbols sizes_from(std::int64_t least, const Symbols& names) {
  const auto is_prime = [](std::int64_t n) {
    for (std::int64_t d = 2; d * d <= n; ++d) {
      if (n % d == 0) return false;
    }
    return true;
  };
  Symbols sizes;
  for (const auto& [name, unused] : names) {
    while (!is_prime(least)) ++least;
    sizes[name] = least++;
  }
  return sizes;
}

// Where the large sizes begin: lower than kLarge for a graph whose inputs
// have many dimensions of unknown size.
std::int64_t large_for(const graph::Graph& graph) {
  std::int64_t least = kLarge;
  for (const graph::Value* input : graph.inputs()) {
    if (!input->type().dims) continue;
    double elements = 1, unknown = 0;
    for (const graph::Dim& dim : *input->type().dims)
      dim.is_static() ? elements *= static_cast<double>(dim.size) : ++unknown;
    if (unknown == 0 || elements == 0) continue;
    const double size = std::pow(kMaxElements / elements, 1 / unknown) / 2;  // primes follow
    least = std::min(least, std::max(static_cast<std::int64_t>(size), kSmall));
  }
  return least;
}

graph::Dim common_dim(std::size_t axis, const graph::Value* value, const std::vector<Types>& runs,
                      const std::vector<Symbols>& symbols) {
  const auto size = [&](std::size_t run) {
    return runs[run].at(value).meta.size(static_cast<std::int64_t>(axis));
  };
  const auto in_all = [&](const auto& equals) {
    for (std::size_t run = 0; run < runs.size(); ++run) {
      if (!equals(run)) return false;
    }
    return true;
  };
  if (in_all([&](std::size_t run) { return size(run) == size(0); })) return graph::Dim::of(size(0));
  for (const auto& [name, unused] : symbols[0]) {
    if (in_all([&](std::size_t run) { return size(run) == symbols[run].at(name); }))
      return graph::Dim::named(name);
  }
  return {};
}

// The type of a value in all runs; its rank only where some do not know it.
graph::TensorType common_type(const graph::Value* value, const std::vector<Types>& runs,
                              const std::vector<Symbols>& symbols) {
  const at::Tensor& meta = runs[0].at(value).meta;
  graph::TensorType type{dtype_of(meta.scalar_type()),
                         std::vector<graph::Dim>(static_cast<std::size_t>(meta.dim()))};
  for (const Types& run : runs) {
    const auto found = run.find(value);
    if (found == run.end() || found->second.meta.dim() != meta.dim()) return type;
  }
  for (std::size_t axis = 0; axis < type.dims->size(); ++axis)
    (*type.dims)[axis] = common_dim(axis, value, runs, symbols);
  return type;
}

}  // namespace

void infer_types(graph::Graph& graph, const Symbols& sizes) {
  const bool sized_by_data =
      std::ranges::any_of(graph.nodes(), [](const auto& node) { return graph::is_sized_by_data(*node); });
  std::vector<Symbols> symbols{sizes};
  if (!sizes.empty() || sized_by_data) {
    symbols.push_back(sizes_from(kSmall, sizes));
    symbols.push_back(sizes_from(large_for(graph), sizes));
  }
  std::vector<Types> runs;
  for (const Symbols& each : symbols) {
    Inference inference(graph, /*asks_torch=*/runs.empty(), kDataSizes[runs.size()]);
    inference.set_inputs(each);
    runs.push_back(inference.run());
  }
  const auto set = [&](graph::Value* value) {
    if (runs[0].contains(value)) value->set_type(common_type(value, runs, symbols));
  };
  for (const auto& node : graph.nodes()) {
    for (std::size_t i = 0; i < node->outputs().size(); ++i) set(node->output(i));
  }
}

std::unordered_map<const graph::Value*, Sizes> value_sizes(const graph::Graph& graph,
                                                           const Symbols& symbols) {
  Inference inference(graph, /*asks_torch=*/true);
  inference.set_inputs(symbols);
  std::unordered_map<const graph::Value*, Sizes> sizes;
  for (const auto& [value, known] : inference.run()) sizes[value] = known.meta.sizes().vec();
  return sizes;
}

std::vector<std::int64_t> answer_from_sizes(const graph::Graph& graph,
                                            const std::vector<at::Tensor>& inputs) {
  TORCH_CHECK(graph.outputs().size() == 1, "a graph of questions has ", graph.outputs().size(), " outputs");
  TORCH_CHECK(inputs.size() == graph.inputs().size(), "the graph takes ", graph.inputs().size(),
              " inputs, but the call has ", inputs.size());
  Inference inference(graph, /*asks_torch=*/true);
  for (std::size_t i = 0; i < inputs.size(); ++i) inference.set_input(i, inputs[i]);
  const Types known = inference.run();
  const auto found = known.find(graph.outputs()[0]);
  TORCH_CHECK(found != known.end() && found->second.constant.defined(), "'", graph.outputs()[0]->name(),
              "' does not follow from the sizes of the inputs", inference.first_error().empty() ? "" : "; ",
              inference.first_error());
  const at::Tensor values = found->second.constant.to(at::kLong).contiguous();
  const auto* data = values.const_data_ptr<std::int64_t>();
  return {data, data + values.numel()};
}

}  // namespace rekindle::session
