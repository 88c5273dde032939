// Preloaded into a program, lets it believe that it is REKINDLE_TEST_CLOCK seconds later (or earlier) than it
// is. Only time(), which all of Rekindle's stamps come from.
#include <cstdlib>
#include <ctime>

extern "C" __attribute__((visibility("default"))) std::time_t time(std::time_t* out) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const char* shift = std::getenv("REKINDLE_TEST_CLOCK");
  const std::time_t shifted = now.tv_sec + (shift == nullptr ? 0 : std::atoll(shift));
  if (out != nullptr) *out = shifted;
  return shifted;
}
