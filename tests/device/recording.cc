#include "tests/device/recording.h"

#include <ATen/ops/from_blob.h>

#include <map>
#include <mutex>

#include "tests/device/machine.h"

namespace rekindle::testing::device {
namespace {

constexpr int kRecordingStream = kStreams - 1;

thread_local std::unique_ptr<Recording> of_thread;

struct Recordings {
  std::mutex mutex;
  std::map<std::int64_t, std::shared_ptr<Recording>> all;
  std::int64_t last = 0;
};

Recordings& recordings() {
  static auto& all = *new Recordings;
  return all;
}

}  // namespace

Recording* recording() { return of_thread.get(); }

void refuse_to_record(const char* what) {
  TORCH_CHECK(recording() == nullptr, "operation not permitted when stream is capturing: ", what);
}

void record_launch(std::function<void()> launch) {
  if (Recording* const now = recording()) now->launches.push_back(std::move(launch));
}

at::Tensor alias_of(const at::Tensor& tensor) {
  void* const data = const_cast<void*>(tensor.unsafeGetTensorImpl()->data());
  const auto options = at::TensorOptions().dtype(tensor.scalar_type()).device(tensor.device());
  at::Tensor alias = at::for_blob(data, tensor.sizes())
                         .strides(tensor.strides())
                         .options(options)
                         .target_device(tensor.device())
                         .make_tensor();
  alias._set_conj(tensor.is_conj());
  alias._set_neg(tensor.is_neg());
  return alias;
}

void begin_recording(std::int64_t pool) {
  TORCH_CHECK(of_thread == nullptr, "the thread records already");
  auto now = std::make_unique<Recording>();
  now->pool = pool;
  now->index = current_device();
  now->stream = current_stream(now->index);
  Machine::get().save(*now);
  of_thread = std::move(now);
  set_current_stream(of_thread->index, kRecordingStream);
}

std::int64_t end_recording() {
  TORCH_CHECK(of_thread != nullptr, "the thread does not record");
  const std::shared_ptr<Recording> ended = std::move(of_thread);
  set_current_stream(ended->index, ended->stream);
  Machine::get().restore(*ended);
  Recordings& known = recordings();
  const std::lock_guard lock(known.mutex);
  known.all[++known.last] = ended;
  return known.last;
}

void replay(std::int64_t id) {
  std::shared_ptr<Recording> found;
  {
    Recordings& known = recordings();
    const std::lock_guard lock(known.mutex);
    found = known.all.at(id);
  }
  for (const auto& launch : found->launches) launch();
}

void forget_recording(std::int64_t id) {
  Recordings& known = recordings();
  const std::lock_guard lock(known.mutex);
  known.all.erase(id);
}

}  // namespace rekindle::testing::device
