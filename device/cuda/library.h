// Shared libraries that are opened while a process runs, and their functions. Internal to device/cuda.
#pragma once

#include <string>

namespace rekindle::device {

class Library {
 public:
  // Throws std::runtime_error with the loader's reason. Stays open for as long as the process runs.
  explicit Library(const std::string& path);
  // Of it or of a library that it depends on. Throws std::runtime_error where there is none of that name.
  void* find(const char* name) const;
  // Opens what lies beside the library that has a function and whose name begins so, for those who will look for it by
  // its name alone.
  void open_beside(const void* function, const std::string& prefix) const;

 private:
  std::string path_;
  void* handle_ = nullptr;
};

template <typename Signature>
struct Function {
  Function(const Library& library, const char* name) : call(reinterpret_cast<Signature*>(library.find(name))) {}
  Signature* call;
};

}  // namespace rekindle::device
