#pragma once

#include <cstddef>
#include <span>

#include "runtime/base/unique.hpp"
#include "runtime/cuda/context.hpp"
#include "runtime/cuda/handle.hpp"
#include "runtime/cuda/stream.hpp"

namespace ingot::cu {

inline CUresult free_device_memory(const Handle<CUdeviceptr>& memory) {
  return memory.driver->cuMemFree_v2(memory.raw);
}

/// Device memory of the context that was current when it was allocated. Copies are named functions
/// and ordered by their stream; host memory must stay valid until the stream passed them.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// Throws EngineError(cuda); the message says how much was asked for and how much is free.
  static DeviceBuffer allocate(const Context& context, std::size_t bytes);

  CUdeviceptr address() const { return memory_.get().raw; }
  /// The address as a kernel argument.
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(address());
  }
  std::size_t bytes() const { return bytes_; }

  /// Throws EngineError(invalid_argument) when the range is outside the buffer.
  void copy_from_host(const Stream& stream, std::span<const std::byte> from,
                      std::size_t offset_bytes = 0) const;
  void copy_to_host(const Stream& stream, std::span<std::byte> to,
                    std::size_t offset_bytes = 0) const;
  void fill_bytes(const Stream& stream, unsigned char value) const;

 private:
  DeviceBuffer(Handle<CUdeviceptr> memory, std::size_t bytes) : memory_(memory), bytes_(bytes) {}

  Unique<Handle<CUdeviceptr>, free_device_memory> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace ingot::cu
