#include "device/arena_pool.h"

#include <catch2/catch.hpp>

namespace rekindle::device {
namespace {

TEST_CASE("an arena that was given back goes to the next that it is large enough for", "[session][host]") {
  ArenaPool pool(at::kCPU);
  auto first = pool.take(4096);
  const void* const place = first->memory.const_data_ptr();
  pool.give_back(std::move(first));
  auto smaller = pool.take(1024), another = pool.take(1024);
  CHECK(smaller->memory.const_data_ptr() == place);
  CHECK(another->memory.const_data_ptr() != place);
}

TEST_CASE("the smallest idle arena that is large enough is taken", "[session][host]") {
  ArenaPool pool(at::kCPU);
  auto small = pool.take(1024), large = pool.take(8192), middle = pool.take(4096);
  const void* const place = middle->memory.const_data_ptr();
  for (auto* const arena : {&small, &large, &middle}) pool.give_back(std::move(*arena));
  CHECK(pool.take(2048)->memory.const_data_ptr() == place);
}

TEST_CASE("idle arenas and those in use are no more than were once in use", "[session][host]") {
  ArenaPool pool(at::kCPU);
  pool.give_back(pool.take(1024));
  CHECK(pool.idle_bytes() == 1024);
  auto larger = pool.take(4096);  // for which the idle one is too small
  CHECK(pool.idle_bytes() == 0);
  pool.give_back(std::move(larger));
  CHECK(pool.idle_bytes() == 4096);
}

TEST_CASE("an arena that nobody takes for a while is freed", "[session][host]") {
  ArenaPool pool(at::kCPU);
  auto large = pool.take(1 << 20), small = pool.take(1024);
  pool.give_back(std::move(large));
  pool.give_back(std::move(small));
  for (int i = 0; i < 100; ++i) pool.give_back(pool.take(1024));
  CHECK(pool.idle_bytes() == 1024);
}

TEST_CASE("release frees what is idle", "[session][host]") {
  ArenaPool pool(at::kCPU);
  auto used = pool.take(512);
  pool.give_back(pool.take(1024));
  CHECK(pool.release() == 1024);
  CHECK(pool.idle_bytes() == 0);
  pool.give_back(std::move(used));
  CHECK(pool.idle_bytes() == 512);
}

}  // namespace
}  // namespace rekindle::device
