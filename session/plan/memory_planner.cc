#include "session/plan/memory_planner.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
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

using Order = std::vector<std::size_t>;

// Places the buffers one after the other; returns the arena's size.
std::size_t place(std::vector<Buffer>& buffers, const Order& order) {
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
    const auto at = std::upper_bound(by_offset.begin(), by_offset.end(), buffer.offset,
                                     [](std::size_t offset, const Buffer* b) { return offset < b->offset; });
    by_offset.insert(at, &buffer);
  }
  return arena;
}

// No arena is smaller than what lives at one instruction.
std::size_t largest_sum(const std::vector<Buffer>& buffers) {
  std::map<std::int32_t, std::ptrdiff_t> change;
  for (const Buffer& buffer : buffers) {
    change[buffer.first] += static_cast<std::ptrdiff_t>(buffer.bytes);
    change[buffer.last + 1] -= static_cast<std::ptrdiff_t>(buffer.bytes);
  }
  std::ptrdiff_t sum = 0, largest = 0;
  for (const auto& [instruction, bytes] : change) largest = std::max(largest, sum += bytes);
  return static_cast<std::size_t>(largest);
}

std::int64_t lifetime(const Buffer& buffer) { return std::int64_t{buffer.last} - buffer.first; }

// Which buffers are placed first: by size, equal ones by lifetime, by lifetime, or by both together.
using Before = bool (*)(const Buffer&, const Buffer&);
constexpr std::array<Before, 4> kOrders{
    [](const Buffer& a, const Buffer& b) { return a.bytes > b.bytes; },
    [](const Buffer& a, const Buffer& b) {
      return a.bytes != b.bytes ? a.bytes > b.bytes : lifetime(a) > lifetime(b);
    },
    [](const Buffer& a, const Buffer& b) {
      return lifetime(a) != lifetime(b) ? lifetime(a) > lifetime(b) : a.bytes > b.bytes;
    },
    [](const Buffer& a, const Buffer& b) {
      return static_cast<double>(a.bytes) * static_cast<double>(lifetime(a) + 1) >
             static_cast<double>(b.bytes) * static_cast<double>(lifetime(b) + 1);
    }};

// An arena is good enough that exceeds the largest sum by this share of it.
constexpr double kTolerated = 0.002;

}  // namespace

std::size_t plan_memory(std::vector<Buffer>& buffers, std::size_t alignment) {
  for (Buffer& buffer : buffers) buffer.bytes = (buffer.bytes + alignment - 1) / alignment * alignment;
  const auto enough = static_cast<std::size_t>((1 + kTolerated) * static_cast<double>(largest_sum(buffers)));
  std::vector<Buffer> best;
  std::size_t arena = std::numeric_limits<std::size_t>::max();
  for (const Before before : kOrders) {
    Order order(buffers.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order,
                             [&](std::size_t a, std::size_t b) { return before(buffers[a], buffers[b]); });
    const std::size_t bytes = place(buffers, order);
    if (bytes < arena) {
      arena = bytes;
      best = buffers;
    }
    if (arena <= enough) break;
  }
  buffers = std::move(best);
  return arena;
}

}  // namespace rekindle::session
