#include "tests/device/machine.h"

#include <ATen/CPUGeneratorImpl.h>
#include <sys/mman.h>

#include <cstring>

#include "tests/device/recording.h"

namespace rekindle::testing::device {
namespace {

thread_local int current = 0;
thread_local std::array<int, kDevices> current_streams{};

constexpr int kFreed = 0xff;  // bytes of NaN
constexpr std::size_t kPage = 4096;

std::size_t stream_of(int index, int stream) {
  return static_cast<std::size_t>(index) * kStreams + static_cast<std::size_t>(stream);
}

}  // namespace

int current_device() { return current; }
void set_current_device(int index) {
  TORCH_CHECK(index >= 0 && index < kDevices, "there is no test device ", index);
  current = index;
}
int current_stream(int index) { return current_streams.at(static_cast<std::size_t>(index)); }
void set_current_stream(int index, int stream) {
  current_streams.at(static_cast<std::size_t>(index)) = stream;
}

Machine& Machine::get() {
  static Machine* const machine = new Machine;  // outlives all tensors
  return *machine;
}

Machine::Machine() : taken_(kDevices, 0) {
  for (int i = 0; i < kDevices; ++i) {
    void* const memory =
        mmap(nullptr, kMemory, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(memory != MAP_FAILED, "no memory for a test device");
    memory_.push_back(static_cast<char*>(memory));
    generators_.push_back(at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 + i)));
  }
}

void Machine::protect(bool allowed) {
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    if (taken_[i] > 0)
      TORCH_CHECK(mprotect(memory_[i], taken_[i], allowed ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
  }
}

int Machine::device_of(const void* pointer) const {
  const auto* const at = static_cast<const char*>(pointer);
  for (int i = 0; i < kDevices; ++i) {
    const char* const memory = memory_[static_cast<std::size_t>(i)];
    if (at >= memory && at < memory + kMemory) return i;
  }
  return -1;
}

void* Machine::reuse(std::size_t bytes, std::size_t stream, std::int64_t pool) {
  for (auto& [pointer, block] : blocks_) {
    if (block.used || block.bytes != bytes || block.stream != stream || block.pool != pool) continue;
    block.used = true;
    streams_[stream].join(block.after);
    return pointer;
  }
  return nullptr;
}

void Machine::trim(std::size_t index, std::size_t stream) {
  char* const end = memory_[index] + taken_[index];
  char* kept = end;
  while (kept > memory_[index]) {
    const auto last = std::prev(blocks_.lower_bound(kept));
    const Block& block = last->second;
    if (block.used || block.pool != 0 || block.stream != stream) break;
    streams_[stream].join(block.after);
    kept = last->first;
    blocks_.erase(last);
  }
  if (kept == end) return;
  taken_[index] = static_cast<std::size_t>(kept - memory_[index]);
  const std::size_t first =
      (taken_[index] + kPage - 1) / kPage * kPage;  // another block may share the page before
  char* const pages = memory_[index] + first;
  if (pages >= end) return;
  const auto bytes = static_cast<std::size_t>(end - pages);
  TORCH_CHECK(madvise(pages, bytes, MADV_DONTNEED) == 0 && mprotect(pages, bytes, PROT_NONE) == 0);
}

void* Machine::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  ++counted.allocations;
  TORCH_CHECK_WITH(OutOfMemoryError, failing == 0 || --failing > 0, "the test device is out of memory");
  if (bytes == 0) return nullptr;
  bytes = (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  const auto index = static_cast<std::size_t>(current);
  const std::size_t stream = stream_of(current, current_stream(current));
  const std::int64_t pool = recording() == nullptr ? 0 : recording()->pool;
  live += bytes;
  if (void* const old = reuse(bytes, stream, pool)) return old;
  if (recording() == nullptr) trim(index, stream);
  TORCH_CHECK_WITH(OutOfMemoryError, taken_[index] + bytes <= kMemory, "the test device is full");
  char* const pointer = memory_[index] + taken_[index];
  taken_[index] += bytes;
  blocks_[pointer] = {bytes, stream, pool, true, {}, {}};
  protect(true);
  std::memset(pointer, kFreed, bytes);
  if (running_ == 0) protect(false);
  return pointer;
}

void Machine::release(void* pointer) {
  if (pointer == nullptr) return;
  const std::lock_guard lock(mutex_);
  Block& block = blocks_.at(static_cast<char*>(pointer));
  block.used = false;
  for (const std::size_t stream : block.streams) block.after.join(streams_[stream]);
  block.streams.clear();
  live -= block.bytes;
  protect(true);
  std::memset(pointer, kFreed, block.bytes);
  if (running_ == 0) protect(false);
}

void Machine::record_stream(void* pointer, int index, int stream) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<char*>(pointer));
  if (found != blocks_.end()) found->second.streams.insert(stream_of(index, stream));
}

void Machine::record(Event& event, int index, int stream) {
  refuse_to_record("an event");
  const std::lock_guard lock(mutex_);
  event.clock = streams_[stream_of(index, stream)];
  event.clock.join(host_);
}

void Machine::wait(const Event& event, int index, int stream) {
  refuse_to_record("a wait for an event");
  const std::lock_guard lock(mutex_);
  streams_[stream_of(index, stream)].join(event.clock);
}

void Machine::meet(int a, int b) {
  refuse_to_record("a copy between devices");
  const std::lock_guard lock(mutex_);
  Clock &one = streams_[stream_of(a, current_stream(a))], &other = streams_[stream_of(b, current_stream(b))];
  one.join(other);
  other.join(one);
}

void Machine::synchronize(int index, int stream) {
  refuse_to_record("the host waits for a stream");
  const std::lock_guard lock(mutex_);
  ++counted.synchronizations;
  for (int i = 0; i < kStreams; ++i) {
    if (stream < 0 || i == stream) host_.join(streams_[stream_of(index, i)]);
  }
}

void Machine::synchronize(const Clock& clock) {
  refuse_to_record("the host waits for an event");
  const std::lock_guard lock(mutex_);
  ++counted.synchronizations;
  host_.join(clock);
}

void Machine::reset() {
  for (int i = 0; i < kDevices; ++i) synchronize(i, -1);
  const std::lock_guard lock(mutex_);
  counted = {};
  failing = 0;
}

void Machine::save(Recording& recording) {
  const std::lock_guard lock(mutex_);
  protect(true);
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    recording.memory.emplace_back(memory_[i], memory_[i] + taken_[i]);
    recording.random_states.push_back(generators_[i].get_state());
  }
  if (running_ == 0) protect(false);
}

void Machine::restore(const Recording& recording) {
  const std::lock_guard lock(mutex_);
  protect(true);
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    const std::vector<char>& before = recording.memory[i];
    std::ranges::copy(before, memory_[i]);
    std::memset(memory_[i] + before.size(), kFreed, taken_[i] - before.size());
    generators_[i].set_state(recording.random_states[i]);
  }
  if (running_ == 0) protect(false);
}

at::Generator& Machine::generator(int index) { return generators_.at(static_cast<std::size_t>(index)); }

Kernel::Kernel(int index, std::string name) : machine_(Machine::get()), lock_(machine_.mutex_) {
  const std::size_t stream = stream_of(index, current_stream(index));
  is_recorded_ = recording() != nullptr;
  if (!is_recorded_) {
    Clock& clock = machine_.streams_[stream];
    clock.join(machine_.host_);
    launch_ = {stream, ++clock[stream], std::move(name)};
    ++machine_.counted.kernels;
    ++machine_.counted.kernels_on[stream];
  }
  if (machine_.running_++ == 0) machine_.protect(true);
}

Kernel::~Kernel() {
  if (--machine_.running_ == 0) machine_.protect(false);
}

namespace {

// The bytes between the first and the last element.
std::pair<std::uintptr_t, std::uintptr_t> extent(const at::Tensor& tensor) {
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.unsafeGetTensorImpl()->data());
  std::int64_t last = 0;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) last += (tensor.size(dim) - 1) * tensor.stride(dim);
  return {begin, begin + static_cast<std::uintptr_t>(last + 1) * tensor.element_size()};
}

bool is_touched(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kType && tensor.numel() > 0;
}

}  // namespace

void Kernel::reads(const at::Tensor& tensor) {
  if (is_recorded_ || !is_touched(tensor)) return;
  const auto [begin, end] = extent(tensor);
  machine_.accesses_.read(begin, end, launch_, machine_.streams_[launch_.stream]);
}

void Kernel::writes(const at::Tensor& tensor) {
  if (is_recorded_ || !is_touched(tensor)) return;
  const auto [begin, end] = extent(tensor);
  machine_.accesses_.write(begin, end, launch_, machine_.streams_[launch_.stream]);
}

Counts counts() { return Machine::get().counted; }
void reset() { Machine::get().reset(); }
std::size_t live_bytes() { return Machine::get().live; }
void fail_allocation(std::size_t n) { Machine::get().failing = n; }

}  // namespace rekindle::testing::device
