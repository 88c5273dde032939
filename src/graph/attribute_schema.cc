#include "src/graph/attribute_schema.h"

#include <map>

#include "src/graph/torch_node.h"

namespace rekindle::graph {
namespace {

using enum AttributeKind;

// One name a line would hide the table.
// clang-format off
// A name means the same kind on every op, with the exceptions below.
const std::map<std::string_view, AttributeKind>& kinds() {
  static const std::map<std::string_view, AttributeKind> table{
      {"_differentiable", kInts}, {"_layouts", kInts}, {"_autocast_there", kInts}, {"_grad_there", kInt}, {"_needs", kInts}, {"_own", kInt}, {"_random", kInt}, {"_results", kInt}, {"_tracked", kInts},
      {"K", kInt}, {"N", kInt}, {"bits", kInt}, {"quant_type", kInt}, {"_sized_by_data", kInt},
      {"_unused", kInts}, {"_computed", kInts}, {"_sizes", kInts}, {"accumulate", kInt}, {"activation", kString}, {"activation_alpha", kFloats},
      {"activation_beta", kFloats}, {"activations", kStrings}, {"align_corners", kInt}, {"allowzero", kInt},
      {"alpha", kFloat}, {"antialias", kInt}, {"approximate", kString}, {"auto_pad", kString}, {"axes", kInts},
      {"axis", kInt}, {"batch_axis", kInt}, {"batch_dims", kInt}, {"beta", kFloat}, {"bias", kFloat},
      {"block_size", kInt}, {"blocksize", kInt}, {"body", kGraph}, {"carried", kInt}, {"ceil_mode", kInt},
      {"center_point_box", kInt}, {"chunk_size", kInt}, {"clip", kFloat}, {"coordinate_transformation_mode", kString},
      {"cotangents", kInt}, {"count_include_pad", kInt}, {"cubic_coeff_a", kFloat}, {"detect_negative", kInt},
      {"detect_positive", kInt}, {"dilations", kInts}, {"direction", kString}, {"directions", kInts}, {"dtype", kInt},
      {"else_branch", kGraph}, {"end", kInt}, {"epsilon", kFloat}, {"equation", kString}, {"exclude_outside", kInt},
      {"exclusive", kInt}, {"extrapolation_value", kFloat}, {"fmod", kInt}, {"gamma", kFloat}, {"group", kInt},
      {"hidden_size", kInt}, {"high", kFloat}, {"ignore_index", kInt}, {"input_forget", kInt}, {"interleaved", kInt},
      {"inverse", kInt}, {"is_causal", kInt}, {"k", kInt}, {"unidirectional", kInt}, {"transBatchB", kInt}, {"transBatchA", kInt}, {"mask_filter_value", kFloat}, {"is_packed_batching", kInt}, {"keep_aspect_ratio_policy", kString}, {"keepdims", kInt},
      {"kernel_shape", kInts}, {"kv_num_heads", kInt}, {"label_smoothing", kFloat}, {"lambd", kFloat},
      {"largest", kInt}, {"layout", kInt}, {"left_window_size", kInt}, {"linear_before_reset", kInt}, {"low", kFloat},
      {"max_gram_length", kInt}, {"max_skip_count", kInt}, {"mean", kFloat}, {"min_gram_length", kInt},
      {"mode", kString}, {"momentum", kFloat}, {"nearest_mode", kString}, {"new_axis", kInt}, {"ngram_counts", kInts},
      {"ngram_indexes", kInts}, {"noop_with_empty_axes", kInt}, {"num_groups", kInt}, {"num_heads", kInt},
      {"num_outputs", kInt}, {"num_scan_inputs", kInt}, {"offset_group", kInt}, {"onesided", kInt},
      {"output_datatype", kInt}, {"output_dtype", kInt}, {"output_height", kInt}, {"output_padding", kInts},
      {"output_shape", kInts}, {"output_width", kInt}, {"p", kFloat}, {"padding_idx", kInt},
      {"padding_mode", kString}, {"pads", kInts}, {"periodic", kInt}, {"perm", kInts}, {"pool_int64s", kInts},
      {"pooled_shape", kInts}, {"precision", kInt}, {"q_num_heads", kInt}, {"qk_matmul_output_mode", kInt},
      {"recomputes", kString}, {"reduction", kString}, {"relu", kInt}, {"reverse", kInt}, {"right_window_size", kInt}, {"rotary_embedding_dim", kInt},
      {"round_mode", kString}, {"sample_size", kInt}, {"sampling_ratio", kInt}, {"saturate", kInt}, {"scale", kFloat},
      {"scan_input_axes", kInts}, {"scan_input_directions", kInts}, {"scan_output_axes", kInts},
      {"scan_output_directions", kInts}, {"seed", kFloat}, {"select_last_index", kInt}, {"shape", kInts},
      {"size", kInt}, {"softcap", kFloat}, {"softmax_precision", kInt}, {"sorted", kInt}, {"spatial_scale", kFloat},
      {"start", kInt}, {"stash_type", kInt}, {"storage_order", kInt}, {"strides", kInts}, {"then_branch", kGraph},
      {"time_axis", kInt}, {"to", kInt}, {"training_mode", kInt}, {"transA", kInt}, {"transB", kInt},
      {"update_rule", kString}, {"upper", kInt}, {"value", kConstant}, {"weights", kFloats},
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
    case kGraph:
      return "a graph";
  }
  return "unknown";
}

std::optional<AttributeKind> expected_kind(const Node& node, std::string_view attribute) {
  // The operator's own schema says of what kind its arguments are; the session knows it.
  if (is_torch(node) && !attribute.starts_with('_')) return std::nullopt;
  if (node.is("Dropout") && attribute == "seed") return kInt;
  if (node.is("BatchStatistics", kRekindleDomain) && attribute == "momentum") return kConstant;
  if (node.is("LpPool") || node.is("LpNormalization") || node.is("GlobalLpPool")) {
    if (attribute == "p") return kInt;
  }
  const auto position = kinds().find(attribute);
  if (position == kinds().end()) return std::nullopt;
  return position->second;
}

}  // namespace rekindle::graph
