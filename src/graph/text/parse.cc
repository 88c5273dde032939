#include "src/graph/text/parse.h"

#include <bit>
#include <set>
#include <utility>

#include "src/graph/element.h"
#include "src/graph/text/print.h"
#include "src/graph/text/text_scanner.h"

namespace rekindle::graph {
namespace {

// Graphs inside graphs; more would be an attack on the stack. Protobuf's own limit allows a third of 100.
constexpr int kMaxTextDepth = 40;

class Parser {
 public:
  explicit Parser(TextScanner& scan, int depth = 0) : scan_(scan), depth_(depth) {}

  // A graph from behind its keyword on; null after a failure.
  std::unique_ptr<Graph> run() {
    graph_ = std::make_unique<Graph>(scan_.word());
    parse_inputs();
    scan_.expect("{");
    if (scan_.accept("opset")) parse_opsets();
    while (!scan_.failed() && !scan_.accept("return")) parse_node();
    if (!scan_.peek('}')) parse_outputs();
    scan_.expect("}");
    return scan_.failed() ? nullptr : std::move(graph_);
  }

 private:
  struct Declaration {
    std::string name;
    std::optional<TensorType> type;
  };

  // Calls `item` between `open` and `close`, with commas between.
  template <typename Item>
  void parse_list(std::string_view open, std::string_view close, Item item) {
    scan_.expect(open);
    if (scan_.accept(close)) return;
    do {
      item();
    } while (!scan_.failed() && scan_.accept(","));
    scan_.expect(close);
  }

  void parse_inputs() {
    parse_list("(", ")", [&] {
      Declaration declaration = parse_declaration();
      if (!scan_.failed()) graph_->add_input(declaration.name, declaration.type.value_or(TensorType{}));
    });
  }

  void parse_opsets() {
    do {
      std::string domain = scan_.peek_word() ? scan_.word() : "";
      const std::int64_t version = scan_.integer();
      graph_->set_opset(std::move(domain), version);
    } while (!scan_.failed() && scan_.accept(","));
  }

  Declaration parse_declaration() {
    Declaration declaration{.name = scan_.value_name(), .type = std::nullopt};
    if (!declared_.insert(declaration.name).second) {
      scan_.fail("%" + declaration.name + " is defined twice");
    }
    if (scan_.accept(":")) declaration.type = parse_type();
    return declaration;
  }

  TensorType parse_type() {
    TensorType type{.dtype = parse_dtype(scan_.word()), .dims = std::nullopt};
    if (!scan_.peek('[')) return type;
    type.dims.emplace();
    parse_list("[", "]", [&] { type.dims->push_back(parse_dim()); });
    return type;
  }

  DType parse_dtype(const std::string& name) {
    const auto dtype = dtype_from_name(name);
    if (!dtype) scan_.fail("'" + name + "' is not a dtype");
    return dtype.value_or(DType::kUndefined);
  }

  Dim parse_dim() {
    if (scan_.accept("?")) return {};
    if (scan_.peek_word()) return Dim::named(scan_.word());
    const std::int64_t size = scan_.integer();
    if (size < 0) scan_.fail("a dimension cannot be negative; write ? where it is not known");
    return Dim::of(size);
  }

  Value* parse_use() {
    const std::string name = scan_.value_name();
    Value* value = graph_->find_value(name);
    if (value == nullptr) scan_.fail("%" + name + " is not defined above");
    return value;
  }

  void parse_node() {
    std::vector<Declaration> outputs;
    do {
      outputs.push_back(parse_declaration());
    } while (!scan_.failed() && scan_.accept(","));
    scan_.expect("=");
    NodeSpec spec{.op_type = scan_.word(), .outputs = outputs.size()};
    if (scan_.accept("::")) {
      spec.domain = std::move(spec.op_type);
      spec.op_type = scan_.word();
    }
    parse_list("(", ")", [&] { spec.inputs.push_back(scan_.accept("_") ? nullptr : parse_use()); });
    if (scan_.peek('{')) {
      parse_list("{", "}", [&] {
        std::string name = scan_.word();
        scan_.expect("=");
        spec.attributes.insert_or_assign(std::move(name), parse_attribute());
      });
    }
    if (scan_.failed()) return;
    Node* node = graph_->create_node(std::move(spec));
    for (std::size_t i = 0; i < outputs.size(); ++i) declare(node->output(i), outputs[i]);
  }

  void declare(Value* value, const Declaration& declaration) {
    graph_->claim_name(value, declaration.name);
    if (declaration.type) {
      value->set_type(*declaration.type);
    } else if (const ConstantPtr constant = constant_of(value)) {
      value->set_type(type_of(*constant));
    }
  }

  Attribute parse_attribute() {
    if (scan_.peek('"')) return scan_.quoted();
    if (scan_.peek('[')) return parse_list_attribute();
    if (scan_.accept("graph")) return parse_graph();
    if (scan_.accept("floats")) return parse_empty(std::vector<double>{});
    if (scan_.accept("strings")) return parse_empty(std::vector<std::string>{});
    const std::string text = scan_.number();
    if (scan_.peek('[')) return parse_constant(text);
    return parse_number(text);
  }

  Attribute parse_graph() {
    if (depth_ == kMaxTextDepth) {
      scan_.fail("graphs are nested too deeply");
      return GraphPtr();
    }
    return GraphPtr(Parser(scan_, depth_ + 1).run());
  }

  template <typename List>
  Attribute parse_empty(List list) {
    scan_.expect("[");
    scan_.expect("]");
    return list;
  }

  Attribute parse_number(const std::string& text) {
    if (const auto integer = number_from_text<std::int64_t>(text)) return *integer;
    const auto real = number_from_text<double>(text);
    if (!real) scan_.fail("'" + text + "' is not a number");
    return real.value_or(0);
  }

  Attribute parse_list_attribute() {
    std::vector<Attribute> items;
    parse_list("[", "]",
               [&] { items.push_back(scan_.peek('"') ? scan_.quoted() : parse_number(scan_.number())); });
    const Attribute first = items.empty() ? Attribute(std::int64_t{0}) : items.front();
    if (std::holds_alternative<std::int64_t>(first)) return list_of<std::int64_t>(items);
    if (std::holds_alternative<double>(first)) return list_of<double>(items);
    return list_of<std::string>(items);
  }

  template <typename T>
  Attribute list_of(std::vector<Attribute>& items) {
    std::vector<T> list;
    for (Attribute& item : items) {
      if (!std::holds_alternative<T>(item)) {
        scan_.fail(
            "the items of a list must be of one kind: "
            "all integers, all with a point or exponent, or all strings");
        break;
      }
      list.push_back(std::get<T>(std::move(item)));
    }
    return list;
  }

  Attribute parse_constant(const std::string& dtype_text) {
    auto constant = std::make_shared<ConstantTensor>();
    constant->dtype = parse_dtype(dtype_text);
    parse_list("[", "]", [&] { constant->sizes.push_back(scan_.integer()); });
    const auto size = byte_size(constant->dtype, constant->sizes);
    if (!size) scan_.fail("there are no constants of this dtype and these sizes");
    parse_list("{", "}", [&] { parse_element(*constant); });
    if (!scan_.failed() && constant->bytes.size() != static_cast<std::size_t>(*size)) {
      scan_.fail("the number of elements is not " + print(type_of(*constant)) + "'s");
    }
    return ConstantPtr(std::move(constant));
  }

  // One element; of a complex dtype, one of its two parts.
  void parse_element(ConstantTensor& constant) {
    const std::string text = scan_.number();
    if (!scan_.failed() && !append_element(constant.dtype, text, constant.bytes)) {
      scan_.fail("'" + text + "' is not an element of " + dtype_name(constant.dtype));
    }
  }

  static bool append_element(DType dtype, const std::string& text, std::string& bytes) {
    if (dtype == DType::kFloat32 || dtype == DType::kComplex64) {
      return append_raw(number_from_text<float>(text), bytes);
    }
    if (dtype == DType::kFloat64 || dtype == DType::kComplex128) {
      return append_raw(number_from_text<double>(text), bytes);
    }
    if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) return append_small_float(dtype, text, bytes);
    if (is_float8(dtype)) return append_bits(number_from_text<std::int64_t>(text), bytes);
    if (dtype == DType::kUInt64) return append_raw(number_from_text<std::uint64_t>(text), bytes);
    if (dtype == DType::kBool && (text == "true" || text == "false")) {
      append_int64(dtype, text == "true" ? 1 : 0, bytes);
      return true;
    }
    const auto integer = number_from_text<std::int64_t>(text);
    if (!integer) return false;
    const std::size_t begin = bytes.size();
    append_int64(dtype, *integer, bytes);
    const ConstantTensor written{dtype, {}, bytes.substr(begin)};
    return read_int64(written, 0) == *integer;  // else it does not fit
  }

  static bool append_small_float(DType dtype, const std::string& text, std::string& bytes) {
    if (text.starts_with("nan(")) {
      const auto bits = number_from_text<double>(text);
      const auto raw = bits ? std::bit_cast<std::uint64_t>(*bits) : 0;
      return raw != 0 && raw <= 0xffff && append_raw(std::optional(static_cast<std::uint16_t>(raw)), bytes);
    }
    const auto value = number_from_text<double>(text);
    if (value) append_double(dtype, *value, bytes);
    return value.has_value();
  }

  static bool append_bits(std::optional<std::int64_t> bits, std::string& bytes) {
    return bits && *bits >= 0 && *bits <= 255 &&
           append_raw(std::optional(static_cast<std::uint8_t>(*bits)), bytes);
  }

  template <typename T>
  static bool append_raw(std::optional<T> value, std::string& bytes) {
    if (value) bytes.append(reinterpret_cast<const char*>(&*value), sizeof(T));
    return value.has_value();
  }

  void parse_outputs() {
    do {
      Value* value = parse_use();
      if (value != nullptr) graph_->add_output(value);
    } while (!scan_.failed() && scan_.accept(","));
  }

  TextScanner& scan_;
  int depth_;
  std::unique_ptr<Graph> graph_;
  std::set<std::string> declared_;
};

}  // namespace

Result<std::unique_ptr<Graph>> parse(std::string_view text) {
  TextScanner scan(text);
  scan.expect("graph");
  std::unique_ptr<Graph> graph = Parser(scan).run();
  if (!scan.failed() && !scan.at_end()) scan.fail("text follows the end of the graph");
  if (scan.failed()) return scan.error();
  return graph;
}

}  // namespace rekindle::graph
