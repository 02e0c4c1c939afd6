#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/cuda/context.hpp"
#include "runtime/cuda/device_buffer.hpp"
#include "runtime/cuda/stream.hpp"

namespace ingot::executor {

/// One thread's way of putting bytes into a WeightStore. Made, used and destroyed by one thread.
class WeightWriter {
 public:
  virtual ~WeightWriter() = default;
  /// Memory to fill next. Waits until what write() last started from it has arrived.
  virtual std::span<std::byte> staging() = 0;
  /// Starts to copy the first `bytes` of what staging() last returned to `offset` of the store.
  virtual void write(std::uint64_t offset, std::size_t bytes) = 0;
  /// Waits until all that was written has arrived.
  virtual void finish() = 0;
};

/// One block of memory that holds a rank's weights. An interface, so that loading can be tested
/// without a GPU.
class WeightStore {
 public:
  virtual ~WeightStore() = default;
  /// Any thread may call it, for itself.
  virtual std::unique_ptr<WeightWriter> open_writer(std::size_t staging_bytes) = 0;
  /// Copies bytes that have arrived to a place in the store that does not overlap theirs; calls are
  /// carried out in their order. One thread at a time.
  virtual void copy(std::uint64_t from, std::uint64_t to, std::uint64_t bytes) = 0;
  /// Waits for all copies.
  virtual void finish() = 0;
};

/// A block of device memory. A writer has two buffers of pinned host memory, so that its thread
/// fills one while the other one is on its way. The context, which is current on the thread that
/// makes the store, outlives it.
class DeviceWeightStore : public WeightStore {
 public:
  /// Throws EngineError(cuda) where memory does not suffice.
  DeviceWeightStore(const cu::Context& context, std::uint64_t bytes);

  std::unique_ptr<WeightWriter> open_writer(std::size_t staging_bytes) override;
  void copy(std::uint64_t from, std::uint64_t to, std::uint64_t bytes) override;
  void finish() override;

  const cu::DeviceBuffer& memory() const { return memory_; }
  /// Gives the memory up.
  cu::DeviceBuffer release() { return std::move(memory_); }

 private:
  const cu::Context& context_;
  cu::DeviceBuffer memory_;
  cu::Stream stream_;
};

}  // namespace ingot::executor
