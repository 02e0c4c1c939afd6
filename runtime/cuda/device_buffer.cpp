#include "runtime/cuda/device_buffer.hpp"

#include <fmt/format.h>

namespace ingot::cu {
namespace {

void require_inside(std::size_t offset, std::size_t count, std::size_t bytes) {
  if (offset <= bytes && count <= bytes - offset) return;
  throw EngineError(ErrorCode::invalid_argument,
                    fmt::format("copying {} bytes at offset {} of a device buffer of {} bytes",
                                count, offset, bytes));
}

}  // namespace

DeviceBuffer DeviceBuffer::allocate(const Context& context, std::size_t bytes) {
  const DriverApi& driver = context.driver();
  CUdeviceptr address = 0;
  const CUresult result = driver.cuMemAlloc_v2(&address, bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    throw EngineError(
        ErrorCode::cuda,
        fmt::format("allocating {} bytes on device {} ({}): {} bytes are free", bytes,
                    context.device().ordinal, context.device().name, context.free_bytes()));
  }
  driver.check(result, "cuMemAlloc");
  return DeviceBuffer({address, &driver}, bytes);
}

void DeviceBuffer::copy_from_host(const Stream& stream, std::span<const std::byte> from,
                                  std::size_t offset_bytes) const {
  require_inside(offset_bytes, from.size(), bytes_);
  const DriverApi& driver = stream.driver();
  driver.check(
      driver.cuMemcpyHtoDAsync_v2(address() + offset_bytes, from.data(), from.size(), stream.raw()),
      "cuMemcpyHtoDAsync");
}

void DeviceBuffer::copy_to_host(const Stream& stream, std::span<std::byte> to,
                                std::size_t offset_bytes) const {
  require_inside(offset_bytes, to.size(), bytes_);
  const DriverApi& driver = stream.driver();
  driver.check(
      driver.cuMemcpyDtoHAsync_v2(to.data(), address() + offset_bytes, to.size(), stream.raw()),
      "cuMemcpyDtoHAsync");
}

void DeviceBuffer::fill_bytes(const Stream& stream, unsigned char value) const {
  const DriverApi& driver = stream.driver();
  driver.check(driver.cuMemsetD8Async(address(), value, bytes_, stream.raw()), "cuMemsetD8Async");
}

}  // namespace ingot::cu
