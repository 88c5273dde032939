#include "session/lower/trial_sizes.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string_view>

#include "src/graph/torch_node.h"

namespace rekindle::session {
namespace {

// One node, and what its results are made of.
struct Trial {
  const graph::Node& node;
  const std::vector<at::Tensor>& inputs;
  std::int64_t size;

  const at::Tensor& x() const { return inputs.at(0); }
  at::Tensor of(const Sizes& sizes, at::ScalarType dtype) const {
    return at::empty(sizes, at::TensorOptions(dtype).device(at::kMeta));
  }
  at::Tensor indices() const { return of({size}, at::kLong); }
  at::Tensor vector() const { return of({size}, x().scalar_type()); }
  // The input with another size along an attribute's dimension; a vector where there is no such attribute.
  at::Tensor along(const char* dim, std::int64_t fallback, bool flat) const {
    if (flat && node.attribute(dim) == nullptr) return vector();
    Sizes sizes = x().sizes().vec();
    const std::int64_t axis = node.int_attribute(dim, fallback);
    sizes.at(static_cast<std::size_t>(axis < 0 ? axis + x().dim() : axis)) = size;
    return of(sizes, x().scalar_type());
  }
  at::Tensor if_asked(const char* flag, at::Tensor result) const {
    return node.int_attribute(flag, 0) != 0 ? result : of({0}, at::kLong);
  }
};

using Rule = std::function<Tensors(const Trial&)>;

Tensors coordinates(const Trial& t) { return {t.of({t.size, t.x().dim()}, at::kLong)}; }
Tensors coordinate_vectors(const Trial& t) { return Tensors(graph::torch_results(t.node), t.indices()); }
Tensors vector(const Trial& t) { return {t.vector()}; }

// A mask is as many vectors of indices as it has dimensions.
Tensors indexed(const Trial& t) {
  c10::List<std::optional<at::Tensor>> places;
  for (std::size_t i = 1; i < t.inputs.size(); ++i) {
    const at::Tensor& place = t.inputs[i];
    const bool mask =
        place.defined() && (place.scalar_type() == at::kBool || place.scalar_type() == at::kByte);
    for (std::int64_t k = 0; mask && k < place.dim(); ++k) places.push_back(t.indices());
    if (!mask) places.push_back(place.defined() ? std::optional(place) : std::nullopt);
  }
  return {at::index(t.x(), places)};
}

Tensors distinct(const Trial& t) {
  return {t.along("dim", 0, /*flat=*/true),
          t.if_asked("return_inverse", t.of(t.x().sizes().vec(), at::kLong)),
          t.if_asked("return_counts", t.indices())};
}

// (x [B, T, ...] or [T, B, ...], lengths) -> (rows, how many of them each step has)
Tensors packed(const Trial& t) {
  Sizes sizes = t.x().sizes().vec();
  sizes.erase(sizes.begin());
  sizes.at(0) = t.size;
  return {t.of(sizes, t.x().scalar_type()), t.indices()};
}

// (rows, how many of them each step has) -> (x, lengths)
Tensors padded(const Trial& t) {
  Sizes sizes = t.x().sizes().vec();
  sizes.at(0) = t.size;
  sizes.insert(sizes.begin(), t.size);
  const std::int64_t length = t.node.int_attribute("total_length", -1);
  if (length > 0) sizes.at(t.node.int_attribute("batch_first", 0) != 0 ? 1 : 0) = length;
  return {t.of(sizes, t.x().scalar_type()), t.indices()};
}

// (rows, how many of them each step has, states..., weights...) -> (rows, states...); `states`: their number.
// How many sequences there are says a number in the data, and so the states of their beginnings.
Tensors recurrent(const Trial& t, std::size_t states) {
  const std::int64_t width = t.inputs.at(states + 3).size(1);  // of the second weight, from a state
  const std::int64_t directions = t.node.int_attribute("bidirectional", 0) != 0 ? 2 : 1;
  Tensors results{t.of({t.x().size(0), directions * width}, t.x().scalar_type())};
  const Sizes state{t.node.int_attribute("num_layers", 1) * directions, t.size, width};
  for (std::size_t i = 0; i < states; ++i) results.push_back(t.of(state, t.x().scalar_type()));
  return results;
}

Tensors of_one_state(const Trial& t) { return recurrent(t, 1); }

const std::map<std::string, Rule, std::less<>>& rules() {
  static const std::map<std::string, Rule, std::less<>> known{
      {"aten.nonzero.default", coordinates},
      {"aten.argwhere.default", coordinates},
      {"aten.where.default", coordinate_vectors},
      {"aten.nonzero_numpy.default", coordinate_vectors},
      {"aten.masked_select.default", vector},
      {"aten.index.Tensor", indexed},
      {"aten._unique2.default", distinct},
      {"aten.unique_consecutive.default", distinct},
      {"aten._pack_padded_sequence.default", packed},
      {"aten._pad_packed_sequence.default", padded},
      {"aten.gru.data", of_one_state},
      {"aten.rnn_tanh.data", of_one_state},
      {"aten.rnn_relu.data", of_one_state},
      {"aten.lstm.data", [](const Trial& t) { return recurrent(t, 2); }},
      {"aten.bincount.default", [](const Trial& t) { return Tensors{t.indices()}; }},
      {"aten.repeat_interleave.Tensor", [](const Trial& t) { return Tensors{t.indices()}; }},
      {"aten.repeat_interleave.self_Tensor", [](const Trial& t) { return Tensors{t.along("dim", 0, true)}; }},
      {"aten.tensor_split.tensor_indices_or_sections",
       [](const Trial& t) { return Tensors(graph::torch_results(t.node), t.along("dim", 0, false)); }},
      {"aten.one_hot.default",
       [](const Trial& t) {
         Sizes sizes = t.x().sizes().vec();
         sizes.push_back(t.size);
         return Tensors{t.of(sizes, at::kLong)};
       }},
  };
  return known;
}

}  // namespace

bool is_packed_recurrence(const graph::Node& node) {
  constexpr std::array<std::string_view, 4> kRecurrences{"aten.lstm.data", "aten.gru.data",
                                                         "aten.rnn_tanh.data", "aten.rnn_relu.data"};
  return std::ranges::find(kRecurrences, node.op_type()) != kRecurrences.end();
}

std::optional<std::vector<at::Tensor>> results_of_size(const graph::Node& node,
                                                       const std::vector<at::Tensor>& inputs,
                                                       std::int64_t size) {
  const auto rule = rules().find(node.op_type());
  if (rule == rules().end()) return std::nullopt;
  Tensors results = rule->second(Trial{node, inputs, size});
  if (results.size() != graph::torch_results(node)) return std::nullopt;
  return results;
}

}  // namespace rekindle::session
