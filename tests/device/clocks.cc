#include "tests/device/clocks.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace rekindle::testing::device {
namespace {

std::string place(std::size_t stream) {
  return c10::str("stream ", stream % kStreams, " of device ", stream / kStreams);
}

void check(const Launch& earlier, const char* did, const Launch& now, const char* does, const Clock& clock) {
  TORCH_CHECK(earlier.time <= clock[earlier.stream], "race: ", now.name, " on ", place(now.stream), " ", does,
              " what ", earlier.name, " ", did, " on ", place(earlier.stream),
              ", and nothing orders the two");
}

}  // namespace

void Clock::join(const Clock& other) {
  for (std::size_t i = 0; i < times_.size(); ++i) times_[i] = std::max(times_[i], other.times_[i]);
}

void Accesses::read(std::uintptr_t begin, std::uintptr_t end, const Launch& launch, const Clock& clock) {
  for (auto it = cut(begin, end); it != ranges_.end() && it->first < end; ++it) {
    check(it->second.writer, "wrote", launch, "reads", clock);
    it->second.readers[launch.stream] = launch;
  }
}

void Accesses::write(std::uintptr_t begin, std::uintptr_t end, const Launch& launch, const Clock& clock) {
  for (auto it = cut(begin, end); it != ranges_.end() && it->first < end; ++it) {
    check(it->second.writer, "wrote", launch, "writes", clock);
    for (const auto& [stream, reader] : it->second.readers) check(reader, "read", launch, "writes", clock);
    it->second.readers.clear();
    it->second.writer = launch;
  }
}

void Accesses::split(std::uintptr_t at) {
  auto it = ranges_.upper_bound(at);
  if (it == ranges_.begin()) return;
  --it;
  if (it->first == at || it->second.end <= at) return;
  Range rest = it->second;
  it->second.end = at;
  ranges_.emplace(at, std::move(rest));
}

Accesses::Ranges::iterator Accesses::cut(std::uintptr_t begin, std::uintptr_t end) {
  if (begin >= end) return ranges_.end();
  split(begin);
  split(end);
  std::uintptr_t at = begin;
  while (at < end) {  // fills what nobody has touched
    const auto next = ranges_.lower_bound(at);
    if (next != ranges_.end() && next->first == at) {
      at = next->second.end;
      continue;
    }
    const std::uintptr_t until = next == ranges_.end() ? end : std::min(end, next->first);
    ranges_[at].end = until;
    at = until;
  }
  return ranges_.find(begin);
}

}  // namespace rekindle::testing::device
