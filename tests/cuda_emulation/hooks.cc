// The functions that code compiled with -fsanitize=thread calls at each access to memory: the machine's, for
// no thread sanitizer is linked. Their names and arguments: gcc/sanitizer.def.
#include <cstddef>
#include <cstdint>

#include "tests/cuda_emulation/machine.h"

using rekindle::emulation::access;

#define REKINDLE_HOOKS(bytes)                                                         \
  void __tsan_read##bytes(void* address) { access(address, bytes, false); }           \
  void __tsan_write##bytes(void* address) { access(address, bytes, true); }           \
  void __tsan_unaligned_read##bytes(void* address) { access(address, bytes, false); } \
  void __tsan_unaligned_write##bytes(void* address) { access(address, bytes, true); } \
  void __tsan_volatile_read##bytes(void* address) { access(address, bytes, false); }  \
  void __tsan_volatile_write##bytes(void* address) { access(address, bytes, true); }

extern "C" {
REKINDLE_HOOKS(1)
REKINDLE_HOOKS(2)
REKINDLE_HOOKS(4)
REKINDLE_HOOKS(8)
REKINDLE_HOOKS(16)
void __tsan_read_range(void* address, std::size_t bytes) { access(address, bytes, false); }
void __tsan_write_range(void* address, std::size_t bytes) { access(address, bytes, true); }
void __tsan_vptr_update(void** address, void*) { access(address, sizeof(void*), true); }
void __tsan_vptr_read(void** address) { access(address, sizeof(void*), false); }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}

// Only the host's code, in headers of torch, has these.
#define REKINDLE_ATOMICS(bits, T)                                                                         \
  T __tsan_atomic##bits##_load(const volatile T* a, int) { return __atomic_load_n(a, __ATOMIC_SEQ_CST); } \
  void __tsan_atomic##bits##_store(volatile T* a, T v, int) { __atomic_store_n(a, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_exchange(volatile T* a, T v, int) {                                             \
    return __atomic_exchange_n(a, v, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                       \
  T __tsan_atomic##bits##_fetch_add(volatile T* a, T v, int) {                                            \
    return __atomic_fetch_add(a, v, __ATOMIC_SEQ_CST);                                                    \
  }                                                                                                       \
  T __tsan_atomic##bits##_fetch_sub(volatile T* a, T v, int) {                                            \
    return __atomic_fetch_sub(a, v, __ATOMIC_SEQ_CST);                                                    \
  }                                                                                                       \
  bool __tsan_atomic##bits##_compare_exchange_strong(volatile T* a, T* expected, T v, int, int) {         \
    return __atomic_compare_exchange_n(a, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);        \
  }                                                                                                       \
  bool __tsan_atomic##bits##_compare_exchange_weak(volatile T* a, T* expected, T v, int, int) {           \
    return __atomic_compare_exchange_n(a, expected, v, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);         \
  }

REKINDLE_ATOMICS(8, std::uint8_t)
REKINDLE_ATOMICS(32, std::uint32_t)
REKINDLE_ATOMICS(64, std::uint64_t)
}
