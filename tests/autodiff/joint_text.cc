#include "tests/autodiff/joint_text.h"

#include <regex>
#include <utility>

namespace rekindle::autodiff {

std::unique_ptr<graph::Graph> parse_or_fail(const std::string& text) {
  auto parsed = graph::parse(text);
  if (!parsed.ok()) FAIL(parsed.error().message << "\nin\n" << text);
  return std::move(parsed).value();
}

std::vector<bool> flags(std::string_view text) {
  std::vector<bool> result;
  for (char c : text) result.push_back(c == '1');
  return result;
}

void verify_or_fail(const JointGraph& joint) {
  const Status verified = graph::verify(*joint.graph);
  if (!verified.ok()) FAIL(verified.error().message << "\nin\n" << graph::print(*joint.graph));
  REQUIRE(joint.graph->inputs().size() == joint.forward_inputs + joint.cotangent_of.size());
  REQUIRE(joint.graph->outputs().size() == joint.forward_outputs + joint.gradient_of.size());
}

JointGraph joint_of(const std::string& text, std::string_view needs) {
  auto joint = differentiate(*parse_or_fail(text), flags(needs));
  if (!joint.ok()) FAIL(joint.error().message);
  verify_or_fail(*joint);
  return std::move(joint).value();
}

std::string graph_text(const std::string& inputs, const std::string& body, const std::string& outputs) {
  const std::string lines = std::regex_replace(body, std::regex("\n"), "\n  ");
  return "graph t(" + inputs + ") {\n  opset 20, rekindle 1\n  " + lines + "\n  return " + outputs + "\n}\n";
}

void BodyText::add(const graph::Node& node) { text_ += readable(graph::print(node)) + "\n"; }

void BodyText::add_return(const std::vector<graph::Value*>& values) {
  std::string line = "return";
  for (const graph::Value* value : values) line += (line == "return" ? " %" : ", %") + value->name();
  text_ += readable(line) + "\n";
}

std::string BodyText::readable(std::string line) {
  static const std::regex type(R"((%\w+): \w+(\[[^\]]*\])?)"), numbered(R"(%v\d+\b)");
  line = std::regex_replace(line, type, "$1");
  std::smatch match;
  std::string result;
  while (std::regex_search(line, match, numbered)) {
    const auto [position, added] = numbers_.emplace(match.str(), numbers_.size() + 1);
    result += match.prefix().str() + "%" + std::to_string(position->second);
    line = match.suffix();
  }
  return result + line;
}

std::string body_of(const JointGraph& joint) {
  BodyText text;
  for (const auto& node : joint.graph->nodes()) text.add(*node);
  text.add_return(joint.graph->outputs());
  return text.text();
}

std::string backward_of(const std::string& forward, std::string_view needs) {
  const JointGraph joint = joint_of(forward, needs);
  const std::size_t own = parse_or_fail(forward)->nodes().size();
  BodyText text;
  std::size_t position = 0;
  for (const auto& node : joint.graph->nodes()) {
    if (position++ >= own) text.add(*node);
  }
  const auto& outputs = joint.graph->outputs();
  text.add_return({outputs.begin() + static_cast<std::ptrdiff_t>(joint.forward_outputs), outputs.end()});
  return text.text();
}

Error error_of(const std::string& forward, std::string_view needs) {
  auto joint = differentiate(*parse_or_fail(forward), flags(needs));
  REQUIRE_FALSE(joint.ok());
  return joint.error();
}

}  // namespace rekindle::autodiff
