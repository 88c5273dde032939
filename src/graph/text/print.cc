#include "src/graph/text/print.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "src/graph/element.h"
#include "src/graph/text/characters.h"

namespace rekindle::graph {
namespace {

std::string quoted(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string result = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (c == '\n') {
      result += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      result += "\\x";
      result += kHex[byte >> 4];
      result += kHex[byte & 15];
    } else {
      result += c;
    }
  }
  return result + '"';
}

// A word as it is where it can be read back as one, else in quotes.
std::string word(std::string_view text) {
  bool bare = !text.empty() && is_letter(text[0]);
  for (char c : text) bare = bare && (is_letter(c) || is_digit(c) || c == '.');
  return bare ? std::string(text) : quoted(text);
}

std::string value_name(std::string_view name) {
  bool bare = !name.empty();
  for (char c : name)
    bare = bare && (is_letter(c) || is_digit(c) || c == '.' || c == '/' || c == '$' || c == '-');
  return "%" + (bare ? std::string(name) : quoted(name));
}

template <typename T>
std::string shortest(T number) {
  char buffer[64];
  return {buffer, std::to_chars(buffer, buffer + sizeof(buffer), number).ptr};
}

// Bits: the unsigned integer that holds the format; `quiet` is the usual NaN,
// every other one is written by its bits.
template <typename Bits>
std::string nan_text(Bits bits, Bits quiet) {
  if (bits == quiet) return "nan";
  char buffer[32];
  return "nan(0x" + std::string(buffer, std::to_chars(buffer, buffer + sizeof(buffer), bits, 16).ptr) + ")";
}

std::string float_text(float number) {
  return std::isnan(number) ? nan_text<std::uint32_t>(std::bit_cast<std::uint32_t>(number), 0x7fc00000u)
                            : shortest(number);
}
std::string float_text(double number) {
  return std::isnan(number)
             ? nan_text<std::uint64_t>(std::bit_cast<std::uint64_t>(number), 0x7ff8000000000000u)
             : shortest(number);
}

std::string small_float_text(std::uint16_t bits, double value, std::uint16_t quiet) {
  return std::isnan(value) ? nan_text<std::uint16_t>(bits, quiet) : shortest(static_cast<float>(value));
}

template <typename T>
T load(const std::string& bytes, std::int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

std::string element_text(const ConstantTensor& c, std::int64_t i) {
  switch (c.dtype) {
    case DType::kBool:
      return read_int64(c, i) != 0 ? "true" : "false";
    case DType::kUInt64:
      return shortest(load<std::uint64_t>(c.bytes, i));
    case DType::kFloat32:
      return float_text(load<float>(c.bytes, i));
    case DType::kFloat64:
      return float_text(load<double>(c.bytes, i));
    case DType::kFloat16:
      return small_float_text(load<std::uint16_t>(c.bytes, i), read_double(c, i), 0x7e00);
    case DType::kBFloat16:
      return small_float_text(load<std::uint16_t>(c.bytes, i), read_double(c, i), 0x7fc0);
    case DType::kComplex64:
      return float_text(load<float>(c.bytes, 2 * i)) + ", " + float_text(load<float>(c.bytes, 2 * i + 1));
    case DType::kComplex128:
      return float_text(load<double>(c.bytes, 2 * i)) + ", " + float_text(load<double>(c.bytes, 2 * i + 1));
    default:
      if (is_float8(c.dtype)) return shortest(static_cast<int>(load<std::uint8_t>(c.bytes, i)));
      return shortest(read_int64(c, i));
  }
}

// A double that cannot be taken for an integer.
std::string double_attribute_text(double number) {
  std::string text = float_text(number);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

template <typename Items, typename Text>
std::string joined(const Items& items, Text text) {
  std::string result;
  for (const auto& item : items) {
    if (!result.empty()) result += ", ";
    result += text(item);
  }
  return result;
}

// The lines of a graph inside another one's.
std::string indented(std::string text) {
  text.pop_back();  // the last line's end
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3)
    text.replace(at, 1, "\n  ");
  return text;
}

struct AttributeText {
  std::string operator()(std::int64_t v) const { return shortest(v); }
  std::string operator()(double v) const { return double_attribute_text(v); }
  std::string operator()(const std::string& v) const { return quoted(v); }
  std::string operator()(const std::vector<std::int64_t>& v) const { return "[" + joined(v, *this) + "]"; }
  // Only a list of integers may be empty without saying what it is a list of.
  std::string operator()(const std::vector<double>& v) const {
    return (v.empty() ? "floats[" : "[") + joined(v, *this) + "]";
  }
  std::string operator()(const std::vector<std::string>& v) const {
    return (v.empty() ? "strings[" : "[") + joined(v, *this) + "]";
  }
  std::string operator()(const ConstantPtr& v) const { return v == nullptr ? "null" : print(*v); }
  std::string operator()(const GraphPtr& v) const { return v == nullptr ? "null" : indented(print(*v)); }
};

bool is_known(const TensorType& type) { return type.dtype != DType::kUndefined || type.dims.has_value(); }

std::string typed(const Value* value) {
  const std::string name = value_name(value->name());
  if (!is_known(value->type())) return name;
  const ConstantPtr constant = constant_of(value);
  if (constant != nullptr && type_of(*constant) == value->type()) return name;
  return name + ": " + print(value->type());
}

std::string untyped(const Value* value) { return value == nullptr ? "_" : value_name(value->name()); }

std::string opset_text(const Graph& graph) {
  return joined(graph.opsets(), [](const auto& opset) {
    return (opset.first.empty() ? "" : word(opset.first) + " ") + shortest(opset.second);
  });
}

}  // namespace

std::string print(const TensorType& type) {
  std::string text = dtype_name(type.dtype);
  if (!type.dims) return text;
  return text + "[" +
         joined(*type.dims,
                [](const Dim& dim) {
                  if (dim.is_static()) return shortest(dim.size);
                  return dim.symbol.empty() ? std::string("?") : word(dim.symbol);
                }) +
         "]";
}

std::string print(const ConstantTensor& constant) {
  std::string text = print(type_of(constant)) + "{";
  for (std::int64_t i = 0; i < constant.numel(); ++i) {
    if (i > 0) text += ", ";
    text += element_text(constant, i);
  }
  return text + "}";
}

std::string print(const Node& node) {
  std::string text = joined(node.outputs(), typed) + " = ";
  if (!node.domain().empty()) text += word(node.domain()) + "::";
  text += word(node.op_type()) + "(" + joined(node.inputs(), untyped) + ")";
  if (node.attributes().empty()) return text;
  return text + " {" +
         joined(node.attributes(),
                [](const auto& attribute) {
                  return word(attribute.first) + " = " + std::visit(AttributeText{}, attribute.second);
                }) +
         "}";
}

std::string print(const Graph& graph) {
  std::string text = "graph " + word(graph.name()) + "(" + joined(graph.inputs(), typed) + ") {\n";
  if (!graph.opsets().empty()) text += "  opset " + opset_text(graph) + "\n";
  for (const auto& node : graph.nodes()) text += "  " + print(*node) + "\n";
  text += "  return";
  if (!graph.outputs().empty()) text += " " + joined(graph.outputs(), untyped);
  return text + "\n}\n";
}

std::string describe(const Node& node) {
  std::string text = node.domain().empty() ? node.op_type() : node.domain() + "::" + node.op_type();
  std::string details;
  if (!node.outputs().empty()) details = value_name(node.output()->name());
  // A source may be a whole Python stack; its first line is the innermost frame.
  const std::string frame = node.source().substr(0, node.source().find('\n'));
  if (!frame.empty()) details += (details.empty() ? "from " : ", from ") + frame;
  return details.empty() ? text : text + " (" + details + ")";
}

}  // namespace rekindle::graph
