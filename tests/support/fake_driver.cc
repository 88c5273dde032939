// A library with the functions of CUDA's driver that device/cuda calls, which notes what it is asked for.
//
// It stands for one GPU of architecture 9.0, on which nothing runs. fake_driver_log() returns what was noted
// since the last time; fail_launches(1) lets launches fail.
#include <cstring>
#include <string>

namespace {

std::string noted;
std::string given;  // the last log
bool fails = false;
int context = 0, module = 0, function = 0;
void* current = nullptr;

void note(const std::string& line) { noted += line + "\n"; }

}  // namespace

extern "C" {

const char* fake_driver_log() {
  given = std::move(noted);
  noted.clear();
  return given.c_str();
}
void fail_launches(int yes) { fails = yes != 0; }

int cuInit(unsigned) { return 0; }
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 9 : 0;
  return 0;
}
int cuCtxGetCurrent(void** found) {
  *found = current;
  return 0;
}
int cuCtxSetCurrent(void* to) {
  current = to;
  note("cuCtxSetCurrent");
  return 0;
}
int cuDevicePrimaryCtxRetain(void** found, int device) {
  *found = &context;
  note("cuDevicePrimaryCtxRetain " + std::to_string(device));
  return 0;
}
int cuModuleLoadData(void** made, const void* image) {
  *made = &module;
  note(std::string("cuModuleLoadData ") + (std::memcmp(image,
                                                       "\x7f"
                                                       "ELF",
                                                       4) == 0
                                               ? "ELF"
                                               : "unknown"));
  return 0;
}
int cuModuleGetFunction(void** found, void* of, const char* name) {
  *found = &function;
  note(std::string("cuModuleGetFunction ") + name);
  return of == &module ? 0 : 1;
}
int cuLaunchKernel(void* launched, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void* stream, void** parameters, void** extra) {
  if (fails) return 700;
  const auto* words = static_cast<const long long*>(parameters[0]);
  note("cuLaunchKernel " + std::to_string(gx * gy * gz) + " " + std::to_string(bx * by * bz) + " " +
       std::to_string(shared) + " on " + std::to_string(reinterpret_cast<std::size_t>(stream)) + ": " +
       std::to_string(words[0]) + " " + std::to_string(words[1]));
  return launched == &function && extra == nullptr ? 0 : 1;
}
int cuGetErrorString(int, const char** text) {
  *text = "an illegal memory access was encountered";
  return 0;
}

}  // extern "C"
