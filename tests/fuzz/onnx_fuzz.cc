// ONNX import: what is accepted is a sound graph that survives its own export and its text form.
#include "src/graph/onnx/import.h"

#include "src/graph/onnx/export.h"
#include "src/graph/text/parse.h"
#include "src/graph/text/print.h"
#include "src/graph/verify.h"
#include "tests/fuzz/fuzz.h"

using namespace rekindle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto imported = graph::import_onnx(fuzz::view(data, size));
  if (!imported.ok()) return 0;
  fuzz::require(graph::verify(**imported).ok(), "an imported graph is sound");
  const std::string text = graph::print(**imported);
  const auto bytes = graph::export_onnx(**imported);
  fuzz::require(bytes.ok(), "an imported graph can be exported");
  const auto again = graph::import_onnx(*bytes);
  if (!again.ok()) fuzz::require_equal(text, again.error().message, "an exported graph can be imported");
  fuzz::require_equal(graph::print(**again), text, "export and import keep a graph");
  fuzz::require(*graph::export_onnx(**again) == *bytes, "the same graph has the same bytes");
  const auto parsed = graph::parse(text);
  if (!parsed.ok()) fuzz::require_equal(text, parsed.error().message, "printed text parses");
  fuzz::require_equal(graph::print(**parsed), text, "the text form keeps a graph");
  return 0;
}
