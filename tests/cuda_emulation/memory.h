// The memory that emulated kernels may touch, with who has touched it last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace rekindle::emulation {

// When a thread accessed memory.
struct Moment {
  std::uint32_t launch = 0;  // 0: never
  std::uint32_t block = 0;
  std::uint32_t barriers = 0;  // that its block had passed
  std::uint16_t thread = 0;
  std::uint16_t warp_barriers = 0;  // that the thread had passed
};

class Memory {
 public:
  Memory();

  // Returns what is wrong with an access; none if nothing is. Memory of the host may be read only: parameters
  // and constants lie there.
  std::optional<std::string> access(std::uintptr_t address, std::size_t bytes, bool writes,
                                    const Moment& now);
  // Makes the block's shared memory new.
  void begin_block();

  // Memory that holds what nobody writes; std::bad_alloc where there is no more.
  void* allocate(std::size_t bytes);
  void free(void* address);

 private:
  // Remembers who has accessed one byte last.
  struct Cell {
    Moment write, read;
    bool shared_read = false;  // others have read it, and nothing orders them and `read`
  };

  std::optional<std::string> race(Cell& cell, bool writes, const Moment& now) const;
  std::string name_of(std::uintptr_t address) const;
  // The cell of a byte, nullptr for memory of the host; false: nobody may touch it.
  bool find(std::uintptr_t address, std::size_t bytes, Cell** cell);

  std::uintptr_t arena_ = 0, next_ = 0;
  Cell* cells_ = nullptr;                       // of the arena, then of shared memory
  std::map<std::uintptr_t, std::size_t> live_;  // address -> bytes
};

Memory& memory();

}  // namespace rekindle::emulation
