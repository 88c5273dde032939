// Owned<T>: Python objects held by a C++ object, which may be destroyed on any thread.
#pragma once

#include <Python.h>

#include <utility>

namespace rekindle::python {

// A T that holds Python objects, destroyed under the GIL from any thread. Once the interpreter ends it is
// never destroyed: objects of PyTorch that hold one (a queue of its engine, say) may go after it.
template <typename T>
class Owned {
 public:
  explicit Owned(T value) : value_(new T(std::move(value))) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (!Py_IsInitialized()) return;
    const PyGILState_STATE state = PyGILState_Ensure();
    reset();
    PyGILState_Release(state);
  }

  // Destroys it now. Needs the GIL.
  void reset() { delete std::exchange(value_, nullptr); }
  explicit operator bool() const { return value_ != nullptr; }
  T& operator*() const { return *value_; }
  T* operator->() const { return value_; }

 private:
  T* value_;
};

}  // namespace rekindle::python
