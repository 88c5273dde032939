// PlanMismatch: an error type of its own, so that callers can run in eager instead.
#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace rekindle::session {

// Thrown by a kernel whose results are not what its plan was made for: PyTorch's meta kernels, which a plan
// is made with, promised another number of them, other sizes or another dtype.
class PlanMismatch : public c10::Error {
 public:
  explicit PlanMismatch(const std::string& what) : Error({__func__, __FILE__, __LINE__}, what) {}
};

}  // namespace rekindle::session
