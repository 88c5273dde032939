// What an export asks of torch's tracer that Python cannot.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "python/bindings/bindings.h"

namespace rekindle::python {

namespace py = pybind11;
namespace tracer = torch::jit::tracer;

namespace {

// The tracer keeps values that it was given as ints under the argument's name until the call is recorded;
// recording arguments of every name there is takes them away.
void clear_traced_arguments() {
  if (!torch::jit::tracer::isTracing()) return;
  auto& dispatcher = c10::Dispatcher::singleton();
  std::set<std::string> names;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op) continue;
    for (const c10::Argument& argument : op->schema().arguments()) names.insert(argument.name());
  }
  const std::vector<std::int64_t> any(64, 0);
  torch::jit::Node* scratch =
      torch::jit::tracer::getTracingState()->graph->create(torch::jit::prim::ListConstruct, 0);
  for (const std::string& name : names) {
    torch::jit::tracer::addInputs(scratch, name.c_str(), at::IntArrayRef(any));
    torch::jit::tracer::addInputs(scratch, name.c_str(), std::int64_t{0});
  }
  scratch->destroy();
}

thread_local bool places_wanted = true;

// As torch has it, in a function of libtorch_python's own: the Python stack, one line a frame.
void record_place(torch::jit::Node* node) {
  if (!places_wanted) {  // a range without a text would be taken for one with: passes over the graph print it
    static const auto nowhere = std::make_shared<torch::jit::Source>(std::string(), std::nullopt, 0);
    node->setSourceRange(torch::jit::SourceRange(nowhere, 0, 0));
    return;
  }
  std::string text;
  std::optional<std::string> file;
  std::size_t line_of_file = 0;
  for (const torch::jit::StackEntry& entry : tracer::pythonCallstack()) {
    const auto& source = entry.range.source();
    if (!source || !source->filename()) continue;
    const std::size_t line = source->starting_line_no() + source->lineno_for_offset(entry.range.start());
    text += *source->filename() + "(" + std::to_string(line) + "): " + entry.filename + "\n";
    if (!file) file = source->filename(), line_of_file = line;
  }
  const std::size_t size = text.size();
  auto source = std::make_shared<torch::jit::Source>(std::move(text), file, line_of_file);
  node->setSourceRange(torch::jit::SourceRange(std::move(source), 0, size));
}

// Every node of a trace remembers the whole Python stack. In a deep model that takes most of the time.
bool record_places(bool wanted) {
  static const bool installed = (tracer::setRecordSourceLocation(&record_place), true);
  (void)installed;
  return std::exchange(places_wanted, wanted);
}

}  // namespace

void bind_tracer(py::module_& m) {
  m.def(
      "clear_traced_arguments", &clear_traced_arguments,
      "Forget the arguments of a call that failed while torch traced it; the next call would be given them.");
  m.def("record_places", &record_places, py::arg("wanted"),
        "Whether nodes that this thread traces remember where in Python they come from; returns what held "
        "before.");
}

}  // namespace rekindle::python
