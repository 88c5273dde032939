// One bind function per topic; module.cc calls them all.
#pragma once

#include <pybind11/pybind11.h>

namespace rekindle::python {

void bind_cache(pybind11::module_& m);
void bind_call_table(pybind11::module_& m);
void bind_calls(pybind11::module_& m);
void bind_contract(pybind11::module_& m);
void bind_difference(pybind11::module_& m);
void bind_summary(pybind11::module_& m);
void bind_explain(pybind11::module_& m);
void bind_graphs(pybind11::module_& m);
void bind_launches(pybind11::module_& m);
void bind_maintenance(pybind11::module_& m);
void bind_key(pybind11::module_& m);
void bind_memory(pybind11::module_& m);
void bind_onnx(pybind11::module_& m);
void bind_process(pybind11::module_& m);
void bind_python_op(pybind11::module_& m);
void bind_recording(pybind11::module_& m);
void bind_session(pybind11::module_& m);
void bind_stack(pybind11::module_& m);
void bind_stand_ins(pybind11::module_& m);
void bind_writes(pybind11::module_& m);

}  // namespace rekindle::python
