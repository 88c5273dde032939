// set_audit(): tells an export what Python audits meanwhile, as the opening of a file (sys.audit).
#pragma once

#include <pybind11/pybind11.h>

namespace rekindle::python {

// Calls `told(event)` before an audited event of this thread that is not an everyday one; what it raises is
// raised there. None: no more. Throws std::runtime_error if Python takes no audit hook.
void set_audit(const pybind11::object& told);

}  // namespace rekindle::python
