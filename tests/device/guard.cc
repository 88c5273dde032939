// What PyTorch asks of a device type: devices, streams, events, memory, generators.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "tests/device/machine.h"

namespace rekindle::testing::device {
namespace {

int index_of(at::Device device) { return device.has_index() ? device.index() : current_device(); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  at::DeviceType type() const override { return kType; }
  at::Device exchangeDevice(at::Device device) const override {
    const at::Device before = getDevice();
    set_current_device(index_of(device));
    return before;
  }
  at::Device getDevice() const override { return device(current_device()); }
  void setDevice(at::Device device) const override { set_current_device(index_of(device)); }
  void uncheckedSetDevice(at::Device device) const noexcept override { set_current_device(index_of(device)); }
  at::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Stream stream(int index, int stream) const {
    return c10::Stream(c10::Stream::UNSAFE, device(index), static_cast<c10::StreamId>(stream));
  }
  c10::Stream getStream(at::Device device) const override {
    return stream(index_of(device), current_stream(index_of(device)));
  }
  c10::Stream getDefaultStream(at::Device device) const override { return stream(index_of(device), 0); }
  c10::Stream getStreamFromGlobalPool(at::Device device, bool) const override {
    return stream(index_of(device), 1);
  }
  c10::Stream getNewStream(at::Device device, int) const override { return stream(index_of(device), 1); }
  c10::Stream exchangeStream(c10::Stream now) const override {
    const c10::Stream before = getStream(now.device());
    set_current_stream(now.device_index(), static_cast<int>(now.id()));
    return before;
  }

  void record(void** event, const c10::Stream& stream, at::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    Machine::get().record(*static_cast<Event*>(*event), stream.device_index(), static_cast<int>(stream.id()));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr)
      Machine::get().wait(*static_cast<Event*>(event), stream.device_index(), static_cast<int>(stream.id()));
  }
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void* event, at::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void synchronizeEvent(void* event) const override {
    Machine::get().synchronize(static_cast<Event*>(event)->clock);
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& stream) const override {
    Machine::get().synchronize(stream.device_index(), static_cast<int>(stream.id()));
  }
  void synchronizeDevice(at::DeviceIndex index) const override { Machine::get().synchronize(index, -1); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    Machine::get().record_stream(data.get_context(), stream.device_index(), static_cast<int>(stream.id()));
  }
};

struct Allocator final : c10::DeviceAllocator {
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    Machine::get().record_stream(data.get_context(), stream.device_index(), static_cast<int>(stream.id()));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(at::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(at::DeviceIndex) override {}
  void resetPeakStats(at::DeviceIndex) override {}
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const memory = Machine::get().allocate(bytes);
    return {memory, memory, [](void* pointer) { Machine::get().release(pointer); }, device(current_device())};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return [](void* pointer) { Machine::get().release(pointer); };
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    const Kernel kernel(Machine::get().device_of(to), "copy_data");
    std::memcpy(to, from, bytes);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(at::DeviceIndex) const override { return true; }
  at::DeviceIndex deviceCount() const override { return kDevices; }
  at::DeviceIndex getCurrentDevice() const override { return static_cast<at::DeviceIndex>(current_device()); }
  void setCurrentDevice(at::DeviceIndex index) const override { set_current_device(index); }
  at::DeviceIndex exchangeDevice(at::DeviceIndex index) const override {
    const int before = current_device();
    set_current_device(index);
    return static_cast<at::DeviceIndex>(before);
  }
  const at::Generator& getDefaultGenerator(at::DeviceIndex index) const override {
    return Machine::get().generator(index < 0 ? current_device() : index);
  }
  at::Device getDeviceFromPtr(void* data) const override {
    const int index = Machine::get().device_of(data);
    TORCH_CHECK(index >= 0, "this is no memory of a test device");
    return device(index);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Registered {
  Registered() {
    static Allocator allocator;
    static Hooks hooks;
    c10::register_privateuse1_backend("test");
    c10::SetAllocator(kType, &allocator);
    at::RegisterPrivateUse1HooksInterface(&hooks);
  }
} registered;

c10::Stream exchanged(c10::Stream stream) {
  return c10::impl::VirtualGuardImpl(kType).exchangeStream(stream);
}

}  // namespace

StreamScope::StreamScope(int index, int stream)
    : before_(
          exchanged(c10::Stream(c10::Stream::UNSAFE, device(index), static_cast<c10::StreamId>(stream)))) {}

StreamScope::~StreamScope() { exchanged(before_); }

void order(int index, int before, int after) {
  Event event;
  Machine::get().record(event, index, before);
  Machine::get().wait(event, index, after);
}

}  // namespace rekindle::testing::device
