#include "tests/device/host_compiler.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "tests/device/machine.h"
#include "tests/device/recording.h"

namespace rekindle::testing::device {
namespace {

using Entry = void (*)(unsigned blocks, const long long* words);

struct Kernels {
  std::mutex mutex;
  std::vector<Entry> all;
};

Kernels& kernels() {
  static auto& all = *new Kernels;
  return all;
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// A directory of its own, removed when the library is open.
class Workplace {
 public:
  Workplace() {
    std::string made = (std::filesystem::temp_directory_path() / "rekindle-kernel-XXXXXX").string();
    TORCH_CHECK(mkdtemp(made.data()) != nullptr, "no temporary directory");
    directory_ = made;
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  ~Workplace() { std::filesystem::remove_all(directory_); }

  std::filesystem::path file(const char* name) const { return directory_ / name; }

 private:
  std::filesystem::path directory_;
};

}  // namespace

const char* host_language() {
  return R"(
#include <math.h>
#include <string.h>
#define BLOCK block
#define THREAD thread_of_block
#define THREADS 256
#define WORD(i) words.at[i]
#define KERNEL(name, count) \
  struct Words { long long at[count]; }; \
  static void of_thread(const Words& words, unsigned block, unsigned thread_of_block); \
  extern "C" void name(unsigned blocks, const long long* at) { \
    Words words; \
    memcpy(&words, at, sizeof words); \
    for (unsigned block = 0; block < blocks; ++block) \
      for (unsigned thread_of_block = 0; thread_of_block < THREADS; ++thread_of_block) of_thread(words, block, thread_of_block); \
  } \
  static void of_thread(const Words& words, unsigned block, unsigned thread_of_block)
#define FUNCTION_OF inline
#define FUNCTION template <typename T> FUNCTION_OF

FUNCTION_OF unsigned bits_of(float x) { unsigned bits; memcpy(&bits, &x, sizeof bits); return bits; }
FUNCTION_OF float number_of(unsigned bits) { float y; memcpy(&y, &bits, sizeof y); return y; }
FUNCTION_OF double number_of(unsigned long long bits) { double y; memcpy(&y, &bits, sizeof y); return y; }

struct Half { unsigned short bits; };

FUNCTION_OF float value_of(Half x) {
  const int exponent = (x.bits >> 10) & 31, fraction = x.bits & 1023;
  const float size = exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
                     : exponent == 0 ? ldexpf((float)fraction, -24)
                                     : ldexpf((float)(fraction + 1024), exponent - 25);
  return (x.bits & 0x8000) != 0 ? -size : size;
}
FUNCTION_OF void keep(Half& y, float x) {
  const unsigned sign = (bits_of(x) >> 16) & 0x8000;
  const float size = fabsf(x);
  if (x != x) { y.bits = 0x7e00; return; }
  int exponent;
  frexpf(size, &exponent);
  exponent = exponent < -13 ? -13 : exponent;
  const float step = ldexpf(1.0f, exponent - 11), rounded = size >= 65520.0f ? INFINITY : nearbyintf(size / step) * step;
  if (rounded == 0 || rounded > 65504.0f) { y.bits = (unsigned short)(sign | (rounded == 0 ? 0 : 0x7c00)); return; }
  frexpf(rounded, &exponent);
  if (exponent < -13) { y.bits = (unsigned short)(sign | (unsigned)ldexpf(rounded, 24)); return; }
  y.bits = (unsigned short)(sign | ((unsigned)(exponent + 14) << 10) | ((unsigned)ldexpf(rounded, 11 - exponent) & 1023));
}
FUNCTION_OF float add(float a, float b) { return a + b; }
FUNCTION_OF float sub(float a, float b) { return a - b; }
FUNCTION_OF float mul(float a, float b) { return a * b; }
FUNCTION_OF double add(double a, double b) { return a + b; }
FUNCTION_OF double sub(double a, double b) { return a - b; }
FUNCTION_OF double mul(double a, double b) { return a * b; }
)";
}

std::int64_t compile_kernel(const std::string& source, const std::string& name) {
  const Workplace workplace;
  std::ofstream(workplace.file("kernel.cc")) << source;
  const std::string command = std::string(REKINDLE_CXX) +
                              " -std=c++17 -O0 -shared -fPIC -ffp-contract=off -fsanitize=alignment "
                              "-fsanitize-undefined-trap-on-error -o '" +
                              workplace.file("kernel.so").string() + "' '" +
                              workplace.file("kernel.cc").string() + "' > '" +
                              workplace.file("log").string() + "' 2>&1";
  TORCH_CHECK(std::system(command.c_str()) == 0, text_of(workplace.file("log")), source);
  void* const library = dlopen(workplace.file("kernel.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  TORCH_CHECK(library != nullptr, dlerror());
  Kernels& known = kernels();
  const std::lock_guard lock(known.mutex);
  known.all.push_back(reinterpret_cast<Entry>(dlsym(library, name.c_str())));
  TORCH_CHECK(known.all.back() != nullptr, "no kernel ", name);
  return static_cast<std::int64_t>(known.all.size() - 1);
}

void launch_kernel(std::int64_t kernel, std::int64_t blocks, std::vector<std::int64_t> words) {
  Entry launch = nullptr;
  {
    Kernels& known = kernels();
    const std::lock_guard lock(known.mutex);
    launch = known.all.at(static_cast<std::size_t>(kernel));
  }
  const auto run = [launch, blocks, words = std::move(words), index = current_device()] {
    const Kernel kernel(index, "fused");
    launch(static_cast<unsigned>(blocks), reinterpret_cast<const long long*>(words.data()));
  };
  run();
  record_launch(run);
}

}  // namespace rekindle::testing::device
