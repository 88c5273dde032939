#include "src/graph/onnx/origin.h"

#include <charconv>

namespace rekindle::graph {
namespace {

constexpr std::string_view kLine = "\nin checkpoint ";

}  // namespace

std::string origin_text(const Node& node) {
  if (node.checkpoint() == 0) return node.source();
  return node.source() + std::string(kLine) + std::to_string(node.checkpoint());
}

void read_origin(std::string_view text, Node& node) {
  const auto line = text.rfind(kLine);
  if (line != std::string_view::npos) {
    const std::string_view number = text.substr(line + kLine.size());
    std::uint32_t checkpoint = 0;
    const auto read = std::from_chars(number.data(), number.data() + number.size(), checkpoint);
    if (read.ec == std::errc() && read.ptr == number.data() + number.size()) {
      node.set_checkpoint(checkpoint);
      text = text.substr(0, line);
    }
  }
  node.set_source(std::string(text));
}

}  // namespace rekindle::graph
