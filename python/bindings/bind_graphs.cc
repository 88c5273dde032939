// The pipeline that makes graphs of ONNX models, and what autograd's graphs tell. No logic here.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <map>

#include "python/bindings/bindings.h"
#include "python/bindings/errors.h"
#include "session/autograd/gradient_order.h"
#include "session/autograd/saved_versions.h"
#include "session/lower/evaluate.h"
#include "session/lower/infer_types.h"
#include "session/session.h"
#include "src/pipeline/pipeline.h"

namespace rekindle::python {

namespace py = pybind11;

namespace {

py::bytes build_joint(const py::bytes& model, const std::vector<bool>& needs_gradient,
                      const std::map<std::string, std::int64_t>& sizes, bool on_cpu, bool eager_numerics) {
  const auto view = static_cast<std::string_view>(model);
  std::string joint;
  {
    const py::gil_scoped_release release;
    auto built = value_or_throw(pipeline::build_joint_graph(
        view, needs_gradient, [](const graph::Node& node) { return session::evaluate(node); },
        [&](graph::Graph& graph) { session::infer_types(graph, sizes); },
        {on_cpu ? pipeline::Target::kCpu : pipeline::Target::kAccelerator, eager_numerics}));
    joint = value_or_throw(pipeline::serialize_joint_graph(built));
  }
  return joint;
}

std::string joint_text(const py::bytes& joint) {
  return value_or_throw(pipeline::describe_joint_graph(static_cast<std::string_view>(joint)));
}

}  // namespace

void bind_graphs(py::module_& m) {
  m.def("build_joint", &build_joint, py::arg("model"), py::arg("needs_gradient"),
        py::arg("sizes") = std::map<std::string, std::int64_t>(), py::arg("on_cpu") = true,
        py::arg("eager_numerics") = false,
        "ONNX bytes -> bytes of the differentiated, optimized graph. "
        "sizes: of the symbols, where the model was made. on_cpu: whether it will run there. "
        "eager_numerics: whether gradients of one value are added as eager adds them.");
  m.def("joint_text", &joint_text, py::arg("joint"), "The text form of a joint graph.");
  m.def("pipeline_fingerprint", &pipeline::pipeline_fingerprint);
  m.def(
      "gradient_order",
      [](const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs) {
        return session::gradient_order(outputs, inputs);
      },
      py::arg("outputs"), py::arg("inputs"),
      "Positions of the inputs in the order in which a backward of all outputs reaches them.");
  m.def(
      "version_counters",
      [](const std::vector<at::Tensor>& tensors) {
        return session::identities_of(session::counters_of(tensors));
      },
      py::arg("tensors"),
      "A number per tensor, the same for those that count writes together; 0 where none are counted.");
  m.def("supported_ops", &session::supported_ops);
}

}  // namespace rekindle::python
