// Custom autograd Functions as a graph calls them, and what an export has put in the place of functions. No
// logic here.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "python/bindings/bindings.h"
#include "python/calls/collected.h"
#include "python/calls/python_op.h"
#include "python/calls/stand_ins.h"
#include "session/host_function.h"

namespace rekindle::python {

namespace py = pybind11;

void bind_python_op(py::module_& m) {
  py::class_<session::HostFunction, std::shared_ptr<session::HostFunction>>(m, "HostFunction");
  py::class_<PythonOp, session::HostFunction, std::shared_ptr<PythonOp>>(
      m, "PythonOp", py::custom_type_setup(&collected<PythonOp>))
      .def(py::init([](py::object apply, py::tuple arguments, std::vector<std::int64_t> places,
                       py::object make_arguments, std::vector<std::size_t> results, py::tuple others,
                       std::vector<std::size_t> dirty, std::map<std::size_t, std::size_t> reuses,
                       py::object watch, py::object infer, bool recomputes) {
             return std::make_shared<PythonOp>(PythonCall{
                 std::move(apply), std::move(arguments), std::move(places), std::move(make_arguments),
                 std::move(results), std::move(others), std::move(dirty), std::move(reuses), std::move(watch),
                 std::move(infer), recomputes});
           }),
           py::kw_only(), py::arg("apply"), py::arg("arguments"), py::arg("places"),
           py::arg("make_arguments"), py::arg("results"), py::arg("others"), py::arg("dirty"),
           py::arg("reuses"), py::arg("watch"), py::arg("infer"), py::arg("recomputes"));
}

void bind_stand_ins(py::module_& m) {
  m.def("set_stand_ins", &set_stand_ins, py::arg("pairs"), py::arg("absent"),
        "The (replacement, original) pairs that are in place now; `absent` where there was no original.");
}

}  // namespace rekindle::python
