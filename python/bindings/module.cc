// rekindle._native: the C++ rooms as a Python module.
#include "python/bindings/bindings.h"
#include "python/bindings/errors.h"
#include "src/base/log.h"

PYBIND11_MODULE(_native, m) {
  using namespace rekindle;
  m.doc() = "Rekindle's C++ rooms. Private: use the rekindle package.";
  m.attr("torch_version") = REKINDLE_TORCH_VERSION;
  python::bind_errors(m);
  python::bind_call_table(m);
  python::bind_calls(m);
  python::bind_contract(m);
  python::bind_difference(m);
  python::bind_summary(m);
  python::bind_explain(m);
  python::bind_graphs(m);
  python::bind_cache(m);
  python::bind_launches(m);
  python::bind_maintenance(m);
  python::bind_key(m);
  python::bind_memory(m);
  python::bind_onnx(m);
  python::bind_process(m);
  python::bind_python_op(m);
  python::bind_writes(m);
  python::bind_recording(m);
  python::bind_session(m);
  python::bind_stack(m);
  python::bind_stand_ins(m);
  m.def("set_log_level",
        [](std::string_view name) { set_log_level(python::value_or_throw(parse_log_level(name))); });
  m.def("log_debug", &log_debug);
  m.def("log_info", &log_info);
  m.def("log_warning", &log_warning);
  m.def("log_error", &log_error);
}
