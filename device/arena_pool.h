// Lends pieces of a device's memory to whoever computes there, one after the other.
//
// An example: a training plan and an evaluation plan of one model need 100 and 60 MB for what lives within a
// step. The training step takes an arena of 100 MB and gives it back when its backward is done; the
// evaluation takes the same one. Were both in flight at once, there would be two.
#pragma once

#include <ATen/core/TensorBody.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/stream_order.h"
#include "src/base/mutex.h"

namespace rekindle::device {

// A piece of memory, with the streams that use it in turn. Owned by who has taken it.
struct Arena {
  at::Tensor memory;  // one-dimensional, of bytes
  StreamOrder order;
};

// The idle arenas of one device. Idle ones and those in use are together never more bytes than were once in
// use at the same time, and one that nobody takes for a while is freed. Thread-safe.
class ArenaPool {
 public:
  explicit ArenaPool(at::Device device) : device_(device) {}
  ArenaPool(const ArenaPool&) = delete;
  ArenaPool& operator=(const ArenaPool&) = delete;

  // The pool of all sessions. It is never destroyed.
  static ArenaPool& of(at::Device device);

  // An arena of at least `bytes`: the smallest idle one that the device's current stream used last, or a new
  // one. Throws c10::OutOfMemoryError, or what else the device's allocator does; the pool is then as before.
  std::unique_ptr<Arena> take(std::size_t bytes);
  void give_back(std::unique_ptr<Arena> arena);
  // Frees the idle arenas, of all devices (and the idle workspaces, workspace.h) or of this one; returns
  // their bytes.
  static std::size_t release_all();
  std::size_t release();

  std::size_t idle_bytes() const;

 private:
  struct Idle {
    std::unique_ptr<Arena> arena;
    std::uint64_t since;  // how many had been taken then
  };
  using Arenas = std::vector<std::unique_ptr<Arena>>;
  // Under the lock. What the second returns is freed without it.
  std::unique_ptr<Arena> best_of_idle(std::size_t bytes);
  Arenas superfluous();

  const at::Device device_;
  mutable Mutex mutex_;
  std::vector<Idle> idle_;  // those given back last are at the end
  std::size_t idle_bytes_ = 0, used_bytes_ = 0, most_used_ = 0;
  std::uint64_t taken_ = 0;
};

}  // namespace rekindle::device
