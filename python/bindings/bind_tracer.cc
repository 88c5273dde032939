// What an export asks of torch's tracer that Python cannot.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

thread_local bool stacks_wanted = true;
// Whose code is not the user's: torch and this package. Set once, when the exporter is imported.
std::vector<std::string> library_directories;

bool is_library(std::string_view file) {
  return std::ranges::any_of(library_directories,
                             [&](const std::string& directory) { return file.starts_with(directory); });
}

// "model.py:12 in forward": the innermost frame outside of the library directories. Empty without one.
std::string user_place() {
  const py::gil_scoped_acquire gil;
  for (py::object frame = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
       frame;) {
    auto* at = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(at)));
    const std::string file = py::cast<std::string>(code.attr("co_filename"));
    if (!is_library(file)) {
      return file.substr(file.rfind('/') + 1) + ":" + std::to_string(PyFrame_GetLineNumber(at)) + " in " +
             py::cast<std::string>(code.attr("co_name"));
    }
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(at)));
  }
  return {};
}

// As torch has it, in a function of libtorch_python's own: the Python stack, one line a frame.
void record_place(torch::jit::Node* node) {
  if (!stacks_wanted) {
    std::string place = user_place();
    const std::size_t size = place.size();
    auto source = std::make_shared<torch::jit::Source>(std::move(place), std::nullopt, 0);
    node->setSourceRange(torch::jit::SourceRange(std::move(source), 0, size));
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
bool record_stacks(bool wanted) {
  static const bool installed = (tracer::setRecordSourceLocation(&record_place), true);
  (void)installed;
  return std::exchange(stacks_wanted, wanted);
}

}  // namespace

void bind_tracer(py::module_& m) {
  m.def(
      "clear_traced_arguments", &clear_traced_arguments,
      "Forget the arguments of a call that failed while torch traced it; the next call would be given them.");
  m.def(
      "set_library_directories",
      [](std::vector<std::string> directories) { library_directories = std::move(directories); },
      py::arg("directories"),
      "Where the code of torch and of this package lies, each with a separator at its end.");
  m.def("user_place", &user_place,
        "\"model.py:12 in forward\": the innermost frame of this thread outside of the library directories; "
        "empty without one.");
  m.def("record_stacks", &record_stacks, py::arg("wanted"),
        "Whether nodes that this thread traces remember the whole Python stack, or only the user's place "
        "in it; returns what held before.");
}

}  // namespace rekindle::python
