#include "session/plan/memory_planner.h"

#include <algorithm>
#include <numeric>

namespace rekindle::session {
namespace {

// The start of the smallest gap that holds `bytes` between the placed buffers, which are ordered by offset.
// All sizes are multiples of the alignment.
std::size_t best_gap(const std::vector<const Buffer*>& neighbours, std::size_t bytes) {
  std::size_t best = 0, best_size = 0, end = 0;
  bool found = false;
  for (const Buffer* placed : neighbours) {
    if (placed->offset > end) {
      const std::size_t gap = placed->offset - end;
      if (gap >= bytes && (!found || gap < best_size)) {
        best = end;
        best_size = gap;
        found = true;
      }
    }
    end = std::max(end, placed->offset + placed->bytes);
  }
  return found ? best : end;
}

}  // namespace

std::size_t plan_memory(std::vector<Buffer>& buffers, std::size_t alignment) {
  for (Buffer& buffer : buffers) buffer.bytes = (buffer.bytes + alignment - 1) / alignment * alignment;
  std::vector<std::size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return buffers[a].bytes > buffers[b].bytes; });
  std::vector<const Buffer*> by_offset, neighbours;
  std::size_t arena = 0;
  for (const std::size_t index : order) {
    Buffer& buffer = buffers[index];
    neighbours.clear();
    for (const Buffer* placed : by_offset) {
      if (placed->first <= buffer.last && buffer.first <= placed->last) neighbours.push_back(placed);
    }
    buffer.offset = best_gap(neighbours, buffer.bytes);
    arena = std::max(arena, buffer.offset + buffer.bytes);
    const auto place =
        std::upper_bound(by_offset.begin(), by_offset.end(), buffer.offset,
                         [](std::size_t offset, const Buffer* b) { return offset < b->offset; });
    by_offset.insert(place, &buffer);
  }
  return arena;
}

}  // namespace rekindle::session
