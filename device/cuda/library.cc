#include "device/cuda/library.h"

#include <dlfcn.h>

#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace rekindle::device {

Library::Library(const std::string& path)
    : path_(path), handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
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

void Library::open_beside(const void* function, const std::string& prefix) const {
  Dl_info info{};
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return;
  std::error_code none;  // what is not there is not needed, or is found elsewhere
  for (const auto& file :
       std::filesystem::directory_iterator(std::filesystem::path(info.dli_fname).parent_path(), none)) {
    if (file.path().filename().string().starts_with(prefix))
      dlopen(file.path().c_str(), RTLD_NOW | RTLD_LOCAL);
  }
}

}  // namespace rekindle::device
