// Preloaded into a program, makes one in six of its calls to the file system up to 60 ms late: what other
// processes do in between is then seen, as it is on a busy machine.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <random>

namespace {

// `call`, of the library that would have been called.
template <typename Function>
Function* late(const char* call) {
  thread_local std::mt19937 random(std::random_device{}());
  if (random() % 6 == 0) usleep(random() % 60'000);
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, call));
}

}  // namespace

#define REKINDLE_EXPORT extern "C" __attribute__((visibility("default")))

REKINDLE_EXPORT int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return late<int(const char*, int, ...)>("open")(path, flags, mode);
}
REKINDLE_EXPORT int mkdir(const char* path, mode_t mode) noexcept {
  return late<int(const char*, mode_t)>("mkdir")(path, mode);
}
REKINDLE_EXPORT int rename(const char* from, const char* to) noexcept {
  return late<int(const char*, const char*)>("rename")(from, to);
}
REKINDLE_EXPORT int unlink(const char* path) noexcept { return late<int(const char*)>("unlink")(path); }
REKINDLE_EXPORT int flock(int file, int operation) noexcept {
  return late<int(int, int)>("flock")(file, operation);
}
REKINDLE_EXPORT int stat(const char* path, struct stat* info) noexcept {
  return late<int(const char*, struct stat*)>("stat")(path, info);
}
