// The contract of an entry. No logic here.
#include <pybind11/stl.h>

#include "python/bindings/bindings.h"
#include "python/bindings/errors.h"
#include "python/bindings/json_values.h"
#include "src/contract/contract.h"
#include "src/contract/view_steps.h"

namespace rekindle::python {

namespace py = pybind11;
using contract::CallSizes;
using contract::Contract;
using contract::FunctionCall;

namespace {

using python::as_python;

py::tuple as_python(const contract::Question& question) {
  return py::make_tuple(question.where, question.what, question.answer);
}

py::tuple as_python(const contract::FixedSize& fixed) { return py::make_tuple(fixed.places, fixed.why); }

py::tuple as_python(const contract::Layout& layout) { return py::make_tuple(layout.kind, layout.numbers); }

py::tuple as_python(const contract::SavedGroup& group) { return py::make_tuple(group.results, group.inputs); }

py::tuple as_python(const contract::SavedTensor& saved) {
  return py::make_tuple(saved.tensor, saved.results, saved.inputs);
}

py::tuple as_python(const contract::SetAttribute& attribute) {
  return py::make_tuple(attribute.module, attribute.name);
}

py::tuple as_python(const contract::TensorSizes& sizes) { return py::make_tuple(sizes.dtype, sizes.dims); }

// As Python has the sizes of a call (sizes/shapes.py).
py::list as_python(const contract::ArgumentSizes& sizes) {
  py::list made = py::cast(sizes.dims);
  if (sizes.strides) made.append(py::cast(*sizes.strides));
  return made;
}

template <typename Item>
py::list list_of(const std::vector<Item>& items) {
  py::list made;
  for (const Item& item : items) made.append(as_python(item));
  return made;
}

// A property that is a list of records, or None.
template <typename Part, typename Field>
auto records(Field Part::*field) {
  return [field](const Part& self) -> py::object {
    const Field& items = self.*field;
    if constexpr (requires { items.has_value(); }) {
      return items.has_value() ? py::object(list_of(*items)) : py::none();
    } else {
      return list_of(items);
    }
  };
}

void bind_call_sizes(py::module_& m) {
  py::class_<CallSizes>(m, "CallSizes")
      .def_property_readonly("sizes", records(&CallSizes::sizes))
      .def_property_readonly("guards", records(&CallSizes::guards))
      .def_readonly("numbers", &CallSizes::numbers)
      .def_property_readonly("fixed", records(&CallSizes::fixed))
      .def("__eq__", [](const CallSizes& self, const CallSizes& other) { return self == other; })
      .def("__repr__", [](const CallSizes& self) { return contract::json_of(self).dump(); });
}

void bind_function_call(py::module_& m) {
  py::class_<FunctionCall>(m, "FunctionCall")
      .def_property_readonly("function", [](const FunctionCall& self) { return as_python(self.function); })
      .def_property_readonly("arguments", records(&FunctionCall::arguments))
      .def_readonly("tensors", &FunctionCall::tensors)
      .def_readonly("results", &FunctionCall::results)
      .def_property_readonly("others", records(&FunctionCall::others))
      .def_readonly("dirty", &FunctionCall::dirty)
      .def_property_readonly("sizes", records(&FunctionCall::sizes))
      .def("__eq__", [](const FunctionCall& self, const FunctionCall& other) { return self == other; })
      .def("__repr__", [](const FunctionCall& self) { return contract::json_of(self).dump(); });
}

// (kind, name) of the dtypes and devices of a result.
py::list torch_names(const Contract& self) {
  py::list names;
  for (const auto& [kind, name] : self.structure.torch_names()) names.append(py::make_tuple(kind, name));
  return names;
}

void bind_record(py::module_& m) {
  py::class_<Contract> bound(m, "Contract",
                             "How a call and a graph correspond; each field is described in contract.h.");
  bound.attr("VERSION") = contract::kVersion;
  bound
      .def_static(
          "parse",
          [](const py::bytes& text) {
            return value_or_throw(contract::parse(static_cast<std::string_view>(text)));
          },
          py::arg("text"), "Of a section of an entry. Raises Corruption for what no export makes.")
      .def_static(
          "make",
          [](const py::kwargs& fields) { return value_or_throw(contract::from_json(as_json(fields))); },
          "Of the value of each field. Raises RekindleError for values that a contract cannot hold.")
      .def("to_bytes", [](const Contract& self) { return py::bytes(contract::print(self)); })
      .def(
          "check_fit",
          [](const Contract& self, std::size_t inputs, std::size_t outputs, std::size_t cotangents,
             std::size_t arguments, std::vector<std::string> state) {
            value_or_throw(
                contract::check_fit(self, {inputs, outputs, cotangents, arguments, std::move(state)}));
          },
          py::kw_only(), py::arg("inputs"), py::arg("outputs"), py::arg("cotangents"), py::arg("arguments"),
          py::arg("state"), "Raises Corruption where it is not about such a graph and such a call.")
      .def_property_readonly("structure",
                             [](const Contract& self) { return as_python(self.structure.described()); })
      .def_property_readonly("attributes", records(&Contract::attributes))
      .def_property_readonly("torch_names", &torch_names)
      .def_readonly("used", &Contract::used)
      .def_readonly("state", &Contract::state)
      .def_readonly("grad", &Contract::grad)
      .def_readonly("writes", &Contract::writes)
      .def_readonly("functions", &Contract::functions)
      .def_readonly("expected_cotangents", &Contract::expected_cotangents)
      .def_readonly("shapes", &Contract::shapes)
      .def_property_readonly("output_layouts", records(&Contract::output_layouts))
      .def_property_readonly("gradient_layouts", records(&Contract::gradient_layouts))
      .def_readonly("gradient_order", &Contract::gradient_order)
      .def_property_readonly("saved_groups", records(&Contract::saved_groups))
      .def_readonly("inner_results", &Contract::inner_results)
      .def_readonly("silent_writes", &Contract::silent_writes)
      .def_property_readonly("saved_writes", records(&Contract::saved_writes))
      .def_property_readonly("saved_tensors", records(&Contract::saved_tensors))
      .def_readonly("saved_as_given", &Contract::saved_as_given)
      .def_readonly("saved_both_ways", &Contract::saved_both_ways)
      .def_readonly("saved_constants", &Contract::saved_constants)
      .def_property_readonly("data_guards", records(&Contract::data_guards))
      .def_readonly("sized_by_data", &Contract::sized_by_data)
      .def_readonly("draws", &Contract::draws);
  bound.attr("FIELDS") = py::tuple(py::cast(contract::field_names()));
}

template <typename Names>
py::tuple tuple_of(const Names& names) {
  return py::tuple(py::cast(std::vector<std::string>(names.begin(), names.end())));
}

}  // namespace

void bind_contract(py::module_& m) {
  bind_call_sizes(m);
  bind_function_call(m);
  bind_record(m);
  m.attr("VIEW_PROPERTIES") = tuple_of(contract::kViewProperties);
  m.attr("VIEW_METHODS") = tuple_of(contract::kViewMethods);
}

}  // namespace rekindle::python
