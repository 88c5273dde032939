#include "python/recording/tracer.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace rekindle::python {

namespace py = pybind11;
namespace tracer = torch::jit::tracer;

namespace {

thread_local bool stacks_wanted = true;
thread_local bool places_wanted = true;
// Whose code is not the user's: torch and this package. Set once, when the exporter is imported.
std::vector<std::string> library_directories;

bool is_library(std::string_view file) {
  return std::ranges::any_of(library_directories,
                             [&](const std::string& directory) { return file.starts_with(directory); });
}

// Calls visit(frame, code) for the frames of this thread, the innermost first, until it returns false.
template <typename Visit>
void visit_frames(const Visit& visit) {
  for (py::object frame = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
       frame;) {
    auto* at = reinterpret_cast<PyFrameObject*>(frame.ptr());
    if (!visit(frame, py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(at)))))
      return;
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(at)));
  }
}

// The calls of torch.utils.checkpoint.checkpoint that a trace has met, in their order. Their frames are held,
// so that a later one is another object.
thread_local std::vector<py::object> checkpoints;
// Set once, when the exporter is imported; never freed, as Python may be gone by then.
py::object& checkpoint_code() {
  static auto* const code = new py::object;
  return *code;
}

// The number of the outermost checkpoint that the thread is in, from 1; 0 for none.
std::size_t checkpoint_number() {
  const py::gil_scoped_acquire gil;
  py::object outermost;
  visit_frames([&](const py::object& frame, const py::object& code) {
    if (code.is(checkpoint_code())) outermost = frame;
    return true;
  });
  if (!outermost) return 0;
  const auto known =
      std::ranges::find_if(checkpoints, [&](const py::object& frame) { return frame.is(outermost); });
  const auto number = static_cast<std::size_t>(known - checkpoints.begin()) + 1;
  if (known == checkpoints.end()) checkpoints.push_back(outermost);
  return number;
}

// As src/graph/onnx/origin.h has it.
std::string origin() {
  const std::size_t checkpoint = checkpoint_number();
  return checkpoint == 0 ? user_place() : user_place() + "\nin checkpoint " + std::to_string(checkpoint);
}

// As torch has it, in a function of libtorch_python's own: the Python stack, one line a frame.
void record_place(torch::jit::Node* node) {
  if (!places_wanted) return;
  if (!stacks_wanted) {
    std::string place = origin();
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

// Names of arguments in all schemas: lists of integers, and all that is no tensor.
struct ArgumentNames {
  std::set<std::string> lists, others;
};

ArgumentNames argument_names() {
  ArgumentNames names;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op) continue;
    for (const c10::Argument& argument : op->schema().arguments()) {
      c10::TypePtr type = argument.type();
      if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
      if (type->isSubtypeOf(*c10::ListType::ofInts())) names.lists.insert(argument.name());
      if (!type->isSubtypeOf(*c10::TensorType::get())) names.others.insert(argument.name());
    }
  }
  return names;
}

// The tracer keeps values that it was given as ints under the argument's name until the call is recorded;
// recording arguments of every name there is takes them away. Leaves nothing in the graph.
void clear_traced_arguments(torch::jit::Graph& graph) {
  const ArgumentNames names = argument_names();
  const std::vector<std::int64_t> any(64, 0);
  torch::jit::Node* const last = graph.insertPoint()->prev();
  torch::jit::Node* scratch = graph.create(torch::jit::prim::ListConstruct, 0);
  const bool places_were_wanted = std::exchange(places_wanted, false);
  for (const std::string& name : names.lists) {
    tracer::addInputs(scratch, name.c_str(), at::IntArrayRef(any));
  }
  for (const std::string& name : names.others) tracer::addInputs(scratch, name.c_str(), std::int64_t{0});
  places_wanted = places_were_wanted;
  scratch->destroy();
  while (graph.insertPoint()->prev() != last) graph.insertPoint()->prev()->destroy();
}

// The tracer puts a call into the graph before it is made, and its results after.
void remove_unfinished(torch::jit::Graph& graph) {
  torch::jit::Node* last = graph.insertPoint()->prev();
  const c10::FunctionSchema* schema = last->maybeSchema();
  if (last->outputs().empty() && schema != nullptr && !schema->returns().empty()) last->destroy();
}

}  // namespace

std::string user_place() {
  const py::gil_scoped_acquire gil;
  std::string place;
  visit_frames([&](const py::object& frame, const py::object& code) {
    const std::string file = py::cast<std::string>(code.attr("co_filename"));
    if (is_library(file)) return true;
    const int line = PyFrame_GetLineNumber(reinterpret_cast<PyFrameObject*>(frame.ptr()));
    place = file.substr(file.rfind('/') + 1) + ":" + std::to_string(line) + " in " +
            py::cast<std::string>(code.attr("co_name"));
    return false;
  });
  return place;
}

void forget_failed_call() {
  if (!tracer::isTracing()) return;
  torch::jit::Graph& graph = *tracer::getTracingState()->graph;
  remove_unfinished(graph);
  clear_traced_arguments(graph);
}

void set_library_directories(std::vector<std::string> directories) {
  library_directories = std::move(directories);
}

void set_checkpoint_code(py::object code) { checkpoint_code() = std::move(code); }

bool record_stacks(bool wanted) {
  static const bool installed = (tracer::setRecordSourceLocation(&record_place), true);
  (void)installed;
  checkpoints.clear();
  return std::exchange(stacks_wanted, wanted);
}

}  // namespace rekindle::python
