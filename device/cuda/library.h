// Shared libraries that are opened while a process runs, and their functions. Internal to device/cuda.
#pragma once

#include <string>

namespace rekindle::device {

class Library {
 public:
  // Throws std::runtime_error with the loader's reason. Stays open for as long as the process runs.
  explicit Library(const std::string& path);
  // Returns the address of a function of the library, or of one that it depends on. Throws std::runtime_error
  // where neither has one of that name.
  void* find(const char* name) const;
  // Opens the files in the directory of the library that defines `function`, if their names begin with
  // `prefix`: whoever then opens one by its name alone gets that one. One that does not open is left closed.
  void open_beside(const void* function, const std::string& prefix) const;

 private:
  std::string path_;
  void* handle_ = nullptr;
};

template <typename Signature>
struct Function {
  Function(const Library& library, const char* name)
      : call(reinterpret_cast<Signature*>(library.find(name))) {}
  Signature* call;
};

}  // namespace rekindle::device
