#include "src/graph/onnx/attribute.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "src/graph/onnx/tensor.h"

namespace rekindle::graph {
namespace {

// The metadata key of attribute "alpha" is "rekindle.float64.alpha"; its value is the bits in hexadecimal.
constexpr std::string_view kExactPrefix = "rekindle.float64.";
constexpr std::size_t kDigits = 16;

// ONNX keeps 32 bits of a number that was written as 0.1 or 1e-05. The shortest decimal that gives these 32
// bits is what was written; in float32 both mean the same.
double as_written(float value) {
  if (!std::isfinite(value)) return value;
  char digits[32];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), value).ptr;
  double written = value;
  std::from_chars(digits, end, written);
  return written;
}

// NaNs are kept in full too: 32 bits would lose their payload.
bool fits_float(double value) { return as_written(static_cast<float>(value)) == value; }

std::string hex_of(const std::vector<double>& values) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (double value : values) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    for (int shift = 60; shift >= 0; shift -= 4) text += kHex[(bits >> shift) & 15];
  }
  return text;
}

std::optional<std::vector<double>> doubles_of(const std::string& hex) {
  if (hex.size() % kDigits != 0) return std::nullopt;
  std::vector<double> values;
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    bits = bits << 4 | static_cast<std::uint64_t>(digit);
    if (i % kDigits == kDigits - 1) values.push_back(std::bit_cast<double>(bits));
  }
  return values;
}

bool rounds_to(const std::vector<double>& exact, const std::vector<double>& rounded) {
  if (exact.size() != rounded.size()) return false;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const bool same = static_cast<float>(exact[i]) == static_cast<float>(rounded[i]);
    if (!same && !(std::isnan(exact[i]) && std::isnan(rounded[i]))) return false;
  }
  return true;
}

void keep_exact(const std::string& name, const std::vector<double>& values, onnx::NodeProto& node) {
  if (std::ranges::all_of(values, fits_float)) return;
  onnx::StringStringEntryProto* entry = node.add_metadata_props();
  entry->set_key(std::string(kExactPrefix) + name);
  entry->set_value(hex_of(values));
}

}  // namespace

Result<Attribute> attribute_from_onnx(const onnx::AttributeProto& proto, const std::string& what) {
  if (!proto.ref_attr_name().empty()) return unsupported(what + " refers to an attribute of a function");
  switch (proto.type()) {
    case onnx::AttributeProto::INT:
      return Attribute(proto.i());
    case onnx::AttributeProto::FLOAT:
      return Attribute(as_written(proto.f()));
    case onnx::AttributeProto::STRING:
      return Attribute(proto.s());
    case onnx::AttributeProto::INTS:
      return Attribute(std::vector<std::int64_t>(proto.ints().begin(), proto.ints().end()));
    case onnx::AttributeProto::FLOATS:
      return Attribute(std::vector<double>(proto.floats().begin(), proto.floats().end()));
    case onnx::AttributeProto::STRINGS:
      return Attribute(std::vector<std::string>(proto.strings().begin(), proto.strings().end()));
    case onnx::AttributeProto::TENSOR: {
      REKINDLE_ASSIGN_OR_RETURN(ConstantPtr constant, constant_from_onnx(proto.t(), what));
      return Attribute(std::move(constant));
    }
    case onnx::AttributeProto::UNDEFINED:
      return corruption(what + " has no type");
    case onnx::AttributeProto::GRAPH:
    case onnx::AttributeProto::GRAPHS:
      return unsupported(what + " is a graph, which this op does not own");
    default:
      return unsupported(what + " is of type " + onnx::AttributeProto::AttributeType_Name(proto.type()) +
                         ", which is not supported");
  }
}

Status restore_exact_floats(const onnx::NodeProto& proto, const std::string& what,
                            std::map<std::string, Attribute, std::less<>>& attributes) {
  for (const onnx::StringStringEntryProto& entry : proto.metadata_props()) {
    if (!entry.key().starts_with(kExactPrefix)) continue;
    const std::string name = entry.key().substr(kExactPrefix.size());
    const auto exact = doubles_of(entry.value());
    const auto position = attributes.find(name);
    if (exact && position != attributes.end()) {
      auto* list = std::get_if<std::vector<double>>(&position->second);
      auto* single = std::get_if<double>(&position->second);
      if (list != nullptr && rounds_to(*exact, *list)) {
        *list = *exact;
        continue;
      }
      if (single != nullptr && rounds_to(*exact, {*single})) {
        *single = exact->front();
        continue;
      }
    }
    return corruption(what + ": metadata " + entry.key() + " contradicts the attribute");
  }
  return {};
}

void attribute_to_onnx(const std::string& name, const Attribute& attribute, onnx::NodeProto& node) {
  onnx::AttributeProto& proto = *node.add_attribute();
  proto.set_name(name);
  if (const auto* v = std::get_if<std::int64_t>(&attribute)) {
    proto.set_type(onnx::AttributeProto::INT);
    proto.set_i(*v);
  } else if (const auto* v = std::get_if<double>(&attribute)) {
    proto.set_type(onnx::AttributeProto::FLOAT);
    proto.set_f(static_cast<float>(*v));
    keep_exact(name, {*v}, node);
  } else if (const auto* v = std::get_if<std::string>(&attribute)) {
    proto.set_type(onnx::AttributeProto::STRING);
    proto.set_s(*v);
  } else if (const auto* v = std::get_if<std::vector<std::int64_t>>(&attribute)) {
    proto.set_type(onnx::AttributeProto::INTS);
    for (std::int64_t item : *v) proto.add_ints(item);
  } else if (const auto* v = std::get_if<std::vector<double>>(&attribute)) {
    proto.set_type(onnx::AttributeProto::FLOATS);
    for (double item : *v) proto.add_floats(static_cast<float>(item));
    keep_exact(name, *v, node);
  } else if (const auto* v = std::get_if<std::vector<std::string>>(&attribute)) {
    proto.set_type(onnx::AttributeProto::STRINGS);
    for (const std::string& item : *v) proto.add_strings(item);
  } else if (const auto* v = std::get_if<GraphPtr>(&attribute)) {
    proto.set_type(onnx::AttributeProto::GRAPH);
    graph_to_onnx(**v, *proto.mutable_g());
  } else {
    proto.set_type(onnx::AttributeProto::TENSOR);
    constant_to_onnx(*std::get<ConstantPtr>(attribute), *proto.mutable_t());
  }
}

}  // namespace rekindle::graph
