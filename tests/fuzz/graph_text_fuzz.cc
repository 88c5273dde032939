// The text form: what parses prints and parses to the same; what
// verifies besides goes through ONNX unchanged.
#include "src/graph/onnx/export.h"
#include "src/graph/onnx/import.h"
#include "src/graph/text/parse.h"
#include "src/graph/text/print.h"
#include "src/graph/verify.h"
#include "tests/fuzz/fuzz.h"

#include <algorithm>

using namespace rekindle;

// The importer leaves out domains that are not ours.
static bool only_known_domains(const graph::Graph& graph) {
  return std::all_of(graph.opsets().begin(), graph.opsets().end(), [](const auto& opset) {
    return opset.first.empty() || opset.first == graph::kRekindleDomain || opset.first == graph::kTorchDomain;
  });
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parsed = graph::parse(fuzz::view(data, size));
  if (!parsed.ok()) return 0;
  const std::string text = graph::print(**parsed);
  const auto again = graph::parse(text);
  if (!again.ok()) fuzz::require_equal(text, again.error().message, "printed text parses");
  fuzz::require_equal(graph::print(**again), text, "printing and parsing keep a graph");
  if (!graph::verify(**parsed).ok()) return 0;
  fuzz::require_equal(graph::print(*(*parsed)->clone()), text, "a clone is the same graph");
  const auto bytes = graph::export_onnx(**parsed);
  fuzz::require(bytes.ok(), "a sound graph can be exported");
  if (!only_known_domains(**parsed)) return 0;
  // The importer asks for more: known opset versions; it rewrites nodes of old ones.
  const auto onnx = (*parsed)->opsets().find("");
  if (onnx != (*parsed)->opsets().end() && onnx->second < graph::kNormalOnnxOpset) return 0;
  if (const auto imported = graph::import_onnx(*bytes); imported.ok()) {
    fuzz::require_equal(graph::print(**imported), text, "ONNX keeps a graph");
  }
  return 0;
}
