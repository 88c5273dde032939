// Nodes of the torch domain: one operator of PyTorch's dispatcher each,
// run and differentiated by PyTorch itself.
//
// The op type is the name under torch.ops with its overload ("aten.conv2d.default"). Inputs are the
// tensors of the operator's schema in order, the elements of a tensor list in a row; an absent optional
// tensor is an absent input. Every other argument that is not None is an attribute of the argument's
// name; for a tensor list it is its length. Ints that the graph computes are an input, too: a 0-dim
// integer or, for a list, a vector. Outputs are the tensors the operator returns, lists flattened, and
// then, where a gradient is wanted, the tape: what PyTorch recorded for the backward pass. A tape is no
// tensor; only a TorchGradient reads it.
//
// Attributes of our own: _results (how many tensors are returned), _differentiable (which of them depend
// differentiably on inputs), _unused (which nothing read when the graph was made), _layouts (for each in
// a row: dtype, rank, sizes, strides, as they were then), _sizes (for each present input in a row: rank,
// sizes, as they were then), _computed (positions in the schema of the arguments that are inputs because
// the graph computes their numbers), _tracked (of which inputs the tape knows the gradient; set by the
// gradient rule), _random (1: may draw random numbers), _sized_by_data (1: the sizes of the results
// depend on more than the inputs' sizes), _autocast (the dtype in which autocast computes inside, then those
// of the results). Of a call of a function (session/host_function.h): _own (how many inputs, the first ones,
// are arguments of their own: no gradient comes from those in containers), _needs (the inputs that require a
// gradient in eager, whoever asks for one), _grad_there (1: autograd records at its place), _autocast_there
// (the dtype that autocast has there, 0 where it is off; absent where it is as around the forward).
#pragma once

#include "src/graph/graph.h"

namespace rekindle::graph {

inline bool is_torch(const Node& node) { return node.domain() == kTorchDomain; }
// Outputs without the tape. Precondition, here and below: a verified node.
inline std::size_t torch_results(const Node& node) {
  return static_cast<std::size_t>(node.int_attribute("_results", 1));
}
inline bool is_sized_by_data(const Node& node) { return node.int_attribute("_sized_by_data", 0) != 0; }
inline bool has_tape(const Node& node) {
  return is_torch(node) && node.outputs().size() > torch_results(node);
}
// Whether output `index` depends differentiably on any input.
bool is_differentiable_result(const Node& node, std::size_t index);

// The operator that calls a function outside of the graph, as a Function of the user:
// session/host_function.h.
inline constexpr std::string_view kCallHost = "rekindle.call_host.default";

// rekindle::TorchGradient: inputs are the cotangents of the results, the tape
// and, of shape only, the tracked inputs.
inline bool is_torch_gradient(const Node& node) { return node.is("TorchGradient", kRekindleDomain); }
// Tells whether a node is a TorchGradient whose tape was recorded by such a call.
bool is_host_gradient(const Node& node);
inline std::size_t gradient_cotangents(const Node& node) {
  return static_cast<std::size_t>(node.int_attribute("cotangents", 1));
}

// Empty when the attributes of ours fit the node, otherwise what is wrong.
std::string wrong_torch_attributes(const Node& node);

}  // namespace rekindle::graph
