#include "runtime/cuda/pinned_buffer.hpp"

#include <fmt/format.h>

namespace ingot::cu {

PinnedBuffer PinnedBuffer::allocate(const Context& context, std::size_t bytes) {
  const DriverApi& driver = context.driver();
  void* address = nullptr;
  const CUresult result = driver.cuMemHostAlloc(&address, bytes, CU_MEMHOSTALLOC_PORTABLE);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    throw EngineError(ErrorCode::cuda,
                      fmt::format("allocating {} bytes of pinned host memory for device {}: the "
                                  "system has no more of it; free memory, or raise the limit of "
                                  "locked memory (ulimit -l)",
                                  bytes, context.device().ordinal));
  }
  driver.check(result, "cuMemHostAlloc");
  return PinnedBuffer({address, &driver}, bytes);
}

}  // namespace ingot::cu
