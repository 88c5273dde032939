#include "tests/cuda_emulation/memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "tests/cuda_emulation/machine.h"

namespace rekindle::emulation {
namespace {

constexpr std::size_t kArenaBytes = 64 << 20;
constexpr std::size_t kGap = 512;               // between allocations, and their alignment
constexpr std::byte kUnwritten{0xCB};           // no number that a test uses consists of these
constexpr std::size_t kSharedBytes = 48 << 10;  // that a block may have without asking

void* map(std::size_t bytes) {
  void* const made =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) throw std::bad_alloc();
  return made;
}

struct Range {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  bool holds(std::uintptr_t address) const { return address >= begin && address < begin + bytes; }
};

// What kernels declare as __shared__: the thread-local memory of the program itself (kernel_language.h).
const Range& shared() {
  static const Range range = [] {
    Range found;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* into) {
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data != nullptr)
              *static_cast<Range*>(into) = {reinterpret_cast<std::uintptr_t>(info->dlpi_tls_data),
                                            info->dlpi_phdr[i].p_memsz};
          }
          return 1;  // the program comes first
        },
        &found);
    if (found.bytes > kSharedBytes) throw Fault("the kernels' shared memory is more than a block may have");
    return found;
  }();
  return range;
}

// Whether one of two accesses comes before the other on every machine.
bool are_ordered(const Moment& before, const Moment& now) {
  if (before.launch != now.launch) return true;
  if (before.block != now.block) return false;
  if (before.thread == now.thread || before.barriers != now.barriers) return true;
  return before.thread / kWarp == now.thread / kWarp && before.warp_barriers != now.warp_barriers;
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = bytes == 0 ? nullptr : memory().allocate(bytes);
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  static void release(void* data) {
    if (data != nullptr) memory().free(data);
  }
};

c10::Allocator* host_allocator = nullptr;
constexpr std::uint8_t kPriority = 255;

}  // namespace

Memory& memory() {
  static Memory memory;
  return memory;
}

Memory::Memory()
    : arena_(reinterpret_cast<std::uintptr_t>(map(kArenaBytes))),
      next_(arena_ + kArenaBytes / 4),
      cells_(static_cast<Cell*>(map((kArenaBytes + kSharedBytes) * sizeof(Cell)))) {}

void* Memory::allocate(std::size_t bytes) {
  const std::size_t taken = (bytes + 2 * kGap - 1) / kGap * kGap;
  if (next_ + taken > arena_ + kArenaBytes) throw std::bad_alloc();
  const std::uintptr_t address = next_;
  next_ += taken;
  live_.emplace(address, bytes);
  std::memset(reinterpret_cast<void*>(address), static_cast<int>(kUnwritten), bytes);
  return reinterpret_cast<void*>(address);
}

void Memory::free(void* address) {
  live_.erase(reinterpret_cast<std::uintptr_t>(address));
  if (live_.empty()) next_ = arena_ + kArenaBytes / 4;
}

void Memory::begin_block() {
  if (shared().bytes == 0) return;
  std::memset(reinterpret_cast<void*>(shared().begin), static_cast<int>(kUnwritten), shared().bytes);
  std::fill_n(cells_ + kArenaBytes, shared().bytes, Cell{});
}

bool Memory::find(std::uintptr_t address, std::size_t bytes, Cell** cell) {
  if (shared().holds(address)) {
    *cell = cells_ + kArenaBytes + (address - shared().begin);
    return shared().holds(address + bytes - 1);
  }
  if (address < arena_ || address >= arena_ + kArenaBytes) return true;
  *cell = cells_ + (address - arena_);
  auto above = live_.upper_bound(address);
  if (above == live_.begin()) return false;
  const auto& [begin, size] = *--above;
  return address + bytes <= begin + size;
}

std::optional<std::string> Memory::access(std::uintptr_t address, std::size_t bytes, bool writes,
                                          const Moment& now) {
  const std::string what = std::string(writes ? "writes " : "reads ") + std::to_string(bytes) + " bytes at ";
  Cell* cell = nullptr;
  if (!find(address, bytes, &cell)) return "out of bounds: " + what + name_of(address);
  if (cell == nullptr) {
    if (writes) return "writes to the host's memory";
    return std::nullopt;
  }
  const auto* const content = reinterpret_cast<const std::byte*>(address);
  if (!writes && std::all_of(content, content + bytes, [](std::byte one) { return one == kUnwritten; }))
    return "unwritten: " + what + name_of(address) + ", which nobody has written";
  for (std::size_t i = 0; i < bytes; ++i) {
    if (const auto with = race(cell[i], writes, now))
      return "race: " + what + name_of(address) + ", which " + *with + ", and no barrier is between the two";
  }
  return std::nullopt;
}

std::optional<std::string> Memory::race(Cell& cell, bool writes, const Moment& now) const {
  const auto by = [&](const Moment& other, const char* did) {
    const std::string block = other.block == now.block ? "" : " of block " + std::to_string(other.block);
    return "thread " + std::to_string(other.thread) + block + " has " + did;
  };
  if (!are_ordered(cell.write, now)) return by(cell.write, "written");
  const bool reader_is_ordered = are_ordered(cell.read, now);
  const bool same_period =
      cell.read.launch == now.launch && (cell.read.block != now.block || cell.read.barriers == now.barriers);
  if (!writes) {
    cell.shared_read = !reader_is_ordered || (cell.shared_read && same_period);
    cell.read = now;
    return std::nullopt;
  }
  if (!reader_is_ordered) return by(cell.read, "read");
  if (cell.shared_read && same_period) return std::string("other threads have read");
  cell.write = now;
  cell.read = {};
  cell.shared_read = false;
  return std::nullopt;
}

std::string Memory::name_of(std::uintptr_t address) const {
  if (shared().holds(address)) return "+" + std::to_string(address - shared().begin) + " of shared memory";
  auto above = live_.upper_bound(address);
  if (above == live_.begin()) return "memory before all allocations";
  const auto& [begin, size] = *--above;
  return "+" + std::to_string(address - begin) + " of " + std::to_string(size) + " bytes";
}

DeviceMemory::DeviceMemory() {
  static Allocator allocator;
  if (host_allocator == nullptr) host_allocator = c10::GetCPUAllocator();
  c10::SetCPUAllocator(&allocator, kPriority);
}

DeviceMemory::~DeviceMemory() { c10::SetCPUAllocator(host_allocator, kPriority); }

}  // namespace rekindle::emulation
