#include "src/graph/attribute_schema.h"

#include <map>

#include "src/graph/torch_node.h"

namespace rekindle::graph {
namespace {

using enum AttributeKind;

// One name a line would hide the table.
// clang-format off
// A name means the same kind on every op, with the one exception below.
const std::map<std::string_view, AttributeKind>& kinds() {
  static const std::map<std::string_view, AttributeKind> table{
      {"_differentiable", kInts}, {"_random", kInt},      {"_results", kInt},        {"_layouts", kInts},       {"_tracked", kInts},     {"_unused", kInts},
      {"accumulate", kInt},    {"allowzero", kInt},       {"alpha", kFloat},         {"approximate", kString},
      {"auto_pad", kString},   {"axes", kInts},           {"axis", kInt},            {"batch_dims", kInt},
      {"beta", kFloat},        {"ceil_mode", kInt},       {"cotangents", kInt},
      {"count_include_pad", kInt}, {"detect_negative", kInt},
      {"detect_positive", kInt}, {"dilations", kInts},    {"dtype", kInt},           {"end", kInt},
      {"epsilon", kFloat},     {"equation", kString},     {"exclusive", kInt},       {"fmod", kInt},
      {"group", kInt},         {"high", kFloat},          {"ignore_index", kInt},    {"is_causal", kInt},
      {"k", kInt},             {"keepdims", kInt},        {"kernel_shape", kInts},   {"label_smoothing", kFloat},
      {"largest", kInt},       {"low", kFloat},           {"mean", kFloat},          {"mode", kString},
      {"momentum", kFloat},    {"noop_with_empty_axes", kInt}, {"num_outputs", kInt}, {"padding_idx", kInt},
      {"pads", kInts},         {"perm", kInts},           {"reduction", kString},    {"reverse", kInt},
      {"round_mode", kString}, {"saturate", kInt},        {"scale", kFloat},         {"seed", kFloat},
      {"select_last_index", kInt}, {"sorted", kInt},      {"start", kInt},           {"stash_type", kInt},
      {"storage_order", kInt}, {"strides", kInts},        {"to", kInt},              {"training_mode", kInt},
      {"transA", kInt},        {"transB", kInt},          {"upper", kInt},           {"value", kConstant},
  };
  return table;
}
// clang-format on

}  // namespace

const char* attribute_kind_name(AttributeKind kind) {
  switch (kind) {
    case kInt:
      return "an int";
    case kFloat:
      return "a float";
    case kString:
      return "a string";
    case kInts:
      return "a list of ints";
    case kFloats:
      return "a list of floats";
    case kStrings:
      return "a list of strings";
    case kConstant:
      return "a constant";
  }
  return "unknown";
}

std::optional<AttributeKind> expected_kind(const Node& node, std::string_view attribute) {
  // The operator's own schema says of what kind its arguments are; the session knows it.
  if (is_torch(node) && !attribute.starts_with('_')) return std::nullopt;
  if (node.is("Dropout") && attribute == "seed") return kInt;
  const auto position = kinds().find(attribute);
  if (position == kinds().end()) return std::nullopt;
  return position->second;
}

}  // namespace rekindle::graph
