// What the machine finds in kernels that are wrong in one place. This file is compiled as kernels are.
#include "tests/cuda_emulation/machine.h"

#include <catch2/catch.hpp>

#include "tests/cuda_emulation/memory.h"

using rekindle::emulation::Order;
namespace emulation = rekindle::emulation;

namespace {

// Memory of the device, as launches see it.
template <typename T>
struct Array {
  explicit Array(std::size_t size)
      : data(static_cast<T*>(emulation::memory().allocate(size * sizeof(T)))), size(size) {}
  ~Array() { emulation::memory().free(data); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* data;
  std::size_t size;
};

template <typename Kernel>
std::string fault(unsigned blocks, int threads, Kernel kernel) {
  try {
    emulation::launch(kernel, blocks, static_cast<unsigned>(threads));
  } catch (const emulation::Fault& found) {
    return found.what();
  }
  return "";
}

// Each thread writes its number, and reads its neighbour's.
void neighbours(int* out, bool waits) {
  __shared__ int shared[64];
  const unsigned i = threadIdx.x;
  shared[i] = static_cast<int>(i);
  if (waits) __syncthreads();
  out[i] = shared[(i + 1) % blockDim.x];
}

// Each thread reads what another, in the same warp or not, has written.
void reversed(int* out) {
  __shared__ int shared[64];
  const unsigned i = threadIdx.x;
  shared[i] = static_cast<int>(i);
  if (i >= 32) out[i] = shared[63 - i];
}

// Two warps, each with a barrier of its own.
void apart() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

}  // namespace

TEST_CASE("threads see what others wrote before a barrier", "[cuda_emulation]") {
  for (const Order order : {Order::kAscending, Order::kDescending, Order::kShuffled}) {
    emulation::set_order(order);
    const Array<int> out(64);
    CHECK(fault(1, 64, [&] { neighbours(out.data, true); }) == "");
    for (int i = 0; i < 64; ++i) CHECK(out.data[i] == (i + 1) % 64);
  }
  emulation::set_order(Order::kAscending);
}

TEST_CASE("a missing barrier is a race, or a read of nothing", "[cuda_emulation]") {
  const Array<int> out(64);
  CHECK_THAT(fault(1, 64, [&] { neighbours(out.data, false); }),
             Catch::Contains("unwritten: reads 4 bytes at +"));
  emulation::set_order(Order::kDescending);
  CHECK_THAT(fault(1, 64, [&] { neighbours(out.data, false); }),
             Catch::Contains("unwritten: reads 4 bytes at +"));
  emulation::set_order(Order::kAscending);
  CHECK_THAT(fault(1, 64, [&] { reversed(out.data); }),
             Catch::Contains("thread 32 of block 0: race: reads 4 bytes at +") &&
                 Catch::Contains("which thread 31 has written"));
}

TEST_CASE("a write over what others read, and of two blocks to one place, is a race", "[cuda_emulation]") {
  const Array<int> data(1);
  data.data[0] = 1;
  const Array<int> out(64);
  CHECK_THAT(fault(1, 64,
                   [&] {
                     out.data[threadIdx.x] = data.data[0];
                     if (threadIdx.x == 63) data.data[0] = 2;
                   }),
             Catch::Contains("race: writes 4 bytes at +0 of 4 bytes, which other threads have read"));
  CHECK_THAT(fault(2, 1, [&] { data.data[0] = 3; }),
             Catch::Contains("which thread 0 of block 0 has written"));
  CHECK(fault(1, 1, [&] { data.data[0] = 3; }) == "");  // a launch comes after the one before
}

TEST_CASE("a shuffle orders nothing, a barrier of the warp does", "[cuda_emulation]") {
  const Array<int> out(32);
  const auto kernel = [&](bool waits) {
    __shared__ int shared[1];
    if (threadIdx.x == 0) shared[0] = 7;
    const int other = __shfl_down_sync(~0U, static_cast<int>(threadIdx.x), 1);
    if (waits) __syncwarp();
    out.data[threadIdx.x] = shared[0] + other;
  };
  CHECK_THAT(fault(1, 32, [&] { kernel(false); }), Catch::Contains("race: reads 4 bytes"));
  CHECK(fault(1, 32, [&] { kernel(true); }) == "");
  CHECK(out.data[0] == 8);
  CHECK(out.data[31] == 38);  // it has nobody below it
}

TEST_CASE("what not all threads come to is divergent", "[cuda_emulation]") {
  CHECK_THAT(
      fault(1, 64,
            [] {
              if (threadIdx.x != 5) __syncthreads();
            }),
      Catch::Contains("divergent: thread 0 waits at a barrier (") && Catch::Contains("thread 5 has ended"));
  CHECK_THAT(fault(1, 64, apart), Catch::Contains("thread 32 waits at a barrier ("));
  CHECK_THAT(fault(1, 32,
                   [] {
                     if (threadIdx.x < 16) __shfl_down_sync(~0U, 1, 1);
                   }),
             Catch::Contains("divergent: thread 0 waits at a shuffle, thread 16 has ended"));
  CHECK_THAT(fault(1, 32,
                   [] {
                     if (threadIdx.x == 3) __shfl_down_sync(1U, 1, 1);
                   }),
             Catch::Contains("divergent"));  // its mask does not name itself
}

TEST_CASE("memory ends where it ends, and is gone once it is freed", "[cuda_emulation]") {
  const Array<double> data(3);
  for (int i = 0; i < 3; ++i) data.data[i] = i;
  const Array<double> out(4);
  const auto copy = [&](unsigned i) { out.data[i] = data.data[i]; };
  CHECK(fault(1, 3, [&] { copy(threadIdx.x); }) == "");
  CHECK_THAT(fault(1, 4, [&] { copy(threadIdx.x); }),
             Catch::Contains("thread 3 of block 0: out of bounds: reads 8 bytes at +24 of 24 bytes"));
  double* gone = nullptr;
  {
    const Array<double> freed(1);
    gone = freed.data;
  }
  CHECK_THAT(fault(1, 1, [&] { *gone = 1; }), Catch::Contains("out of bounds: writes 8 bytes"));
  [[maybe_unused]] static volatile double of_host = 0;
  CHECK_THAT(fault(1, 1, [&] { of_host = 1; }), Catch::Contains("writes to the host's memory"));
}
