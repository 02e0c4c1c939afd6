#include "src/executor/weight_store.hpp"

#include <fmt/format.h>

#include <array>

#include "runtime/cuda/pinned_buffer.hpp"

namespace ingot::executor {
namespace {

class DeviceWeightWriter : public WeightWriter {
 public:
  DeviceWeightWriter(const cu::Context& context, const cu::DeviceBuffer& memory,
                     std::size_t staging_bytes)
      : memory_(memory),
        slots_{Slot(context, staging_bytes), Slot(context, staging_bytes)},
        stream_(cu::Stream::create(context)) {}

  // The card may still read the slots where an error ended the writing.
  ~DeviceWeightWriter() override { (void)stream_.driver().cuStreamSynchronize(stream_.raw()); }

  std::span<std::byte> staging() override {
    next_ = 1 - next_;
    Slot& slot = slots_[next_];
    if (slot.is_used) slot.arrived.synchronize();
    return slot.buffer.bytes();
  }

  void write(std::uint64_t offset, std::size_t bytes) override {
    Slot& slot = slots_[next_];
    memory_.copy_from_host(stream_, slot.buffer.bytes().first(bytes), offset);
    slot.arrived.record(stream_);
    slot.is_used = true;
  }

  void finish() override { stream_.synchronize(); }

 private:
  struct Slot {
    Slot(const cu::Context& context, std::size_t bytes)
        : buffer(cu::PinnedBuffer::allocate(context, bytes)),
          arrived(cu::Event::create(context, cu::Event::Timing::off)) {}
    cu::PinnedBuffer buffer;
    cu::Event arrived;
    bool is_used = false;
  };

  const cu::DeviceBuffer& memory_;
  std::array<Slot, 2> slots_;
  cu::Stream stream_;
  std::size_t next_ = 0;
};

}  // namespace

DeviceWeightStore::DeviceWeightStore(const cu::Context& context, std::uint64_t bytes)
    : context_(context),
      memory_(cu::DeviceBuffer::allocate(context, bytes)),
      stream_(cu::Stream::create(context)) {}

std::unique_ptr<WeightWriter> DeviceWeightStore::open_writer(std::size_t staging_bytes) {
  context_.make_current();
  return std::make_unique<DeviceWeightWriter>(context_, memory_, staging_bytes);
}

void DeviceWeightStore::copy(std::uint64_t from, std::uint64_t to, std::uint64_t bytes) {
  const cu::DriverApi& driver = stream_.driver();
  driver.check(driver.cuMemcpyDtoDAsync_v2(memory_.address() + to, memory_.address() + from, bytes,
                                           stream_.raw()),
               "cuMemcpyDtoDAsync");
}

void DeviceWeightStore::finish() {
  stream_.synchronize();
}

}  // namespace ingot::executor
