// ONNX models that come as they are: rekindle.onnx_backend stands on this. No logic here.
#include <torch/csrc/utils/pybind.h>

#include "python/bindings/bindings.h"
#include "python/bindings/errors.h"
#include "session/model.h"
#include "src/graph/onnx/import.h"
#include "src/graph/text/print.h"

namespace rekindle::python {

namespace py = pybind11;
using session::Model;

namespace {

session::RunValue value_of(const py::handle& object) {
  if (object.is_none()) return {};
  if (!py::isinstance<py::list>(object)) return object.cast<at::Tensor>();
  c10::List<at::Tensor> list;
  for (const py::handle& item : object) list.push_back(item.cast<at::Tensor>());
  return list;
}

py::object object_of(const session::RunValue& value) {
  if (value.isNone()) return py::none();
  if (value.isTensor()) return py::cast(value.toTensor());
  py::list list;
  for (const at::Tensor& item : value.toTensorVector()) list.append(py::cast(item));
  return list;
}

py::list run_model(Model& model, const py::list& inputs) {
  session::RunValues values, results;
  for (const py::handle& input : inputs) values.push_back(value_of(input));
  try {
    const py::gil_scoped_release release;
    results = model.run(values);
  } catch (const c10::NotImplementedError& error) {
    throw RekindleException(unsupported(error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    throw RekindleException(invalid_argument(error.what_without_backtrace()));
  }
  py::list outputs;
  for (const session::RunValue& result : results) outputs.append(object_of(result));
  return outputs;
}

std::shared_ptr<Model> load_model(const py::bytes& bytes) {
  const auto view = static_cast<std::string_view>(bytes);
  const py::gil_scoped_release release;
  return value_or_throw(Model::create(value_or_throw(graph::import_onnx(view))));
}

std::vector<std::string> names_of(const std::vector<graph::Value*>& values) {
  std::vector<std::string> names;
  for (const graph::Value* value : values) names.push_back(value->name());
  return names;
}

}  // namespace

void bind_onnx(py::module_& m) {
  m.def("interpreted_ops", &session::interpreted_ops);
  py::class_<Model, std::shared_ptr<Model>>(m, "OnnxModel")
      .def(py::init(&load_model), py::arg("model"), "From the bytes of a ModelProto.")
      .def("run", &run_model, py::arg("inputs"),
           "Tensors, lists of tensors and None, one an input; the same for outputs.")
      .def_property_readonly("inputs", [](const Model& self) { return names_of(self.graph().inputs()); })
      .def_property_readonly("outputs", [](const Model& self) { return names_of(self.graph().outputs()); })
      .def_property_readonly("text", [](const Model& self) { return graph::print(self.graph()); })
      .def_property_readonly("why_interpreted", &Model::why_interpreted);
}

}  // namespace rekindle::python
