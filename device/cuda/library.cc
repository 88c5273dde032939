#include "device/cuda/library.h"

#include <dlfcn.h>

#include <stdexcept>

namespace rekindle::device {

Library::Library(const std::string& path) : path_(path), handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) {
    const char* const why = dlerror();
    throw std::runtime_error(why == nullptr ? path + " cannot be opened" : why);
  }
}

void* Library::find(const char* name) const {
  void* const found = dlsym(handle_, name);
  if (found == nullptr) throw std::runtime_error(path_ + " has no function " + name);
  return found;
}

}  // namespace rekindle::device
