#include "runtime/cuda/launch.hpp"

#include <fmt/format.h>

namespace ingot::cu {

void allow_dynamic_smem(const DriverApi& driver, CUfunction function, int bytes) {
  driver.check(
      driver.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes),
      "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)");
}

void launch(const Stream& stream, CUfunction function, const LaunchShape& shape,
            const void* arguments) {
  CUlaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (shape.cluster != Dim3{}) {
    CUlaunchAttribute& attribute = attributes[count++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {shape.cluster.x, shape.cluster.y, shape.cluster.z};
  }
  if (shape.programmatic && stream.has_programmatic_launch()) {
    CUlaunchAttribute& attribute = attributes[count++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
  }
  const CUlaunchConfig config{
      .gridDimX = shape.grid.x,
      .gridDimY = shape.grid.y,
      .gridDimZ = shape.grid.z,
      .blockDimX = shape.block.x,
      .blockDimY = shape.block.y,
      .blockDimZ = shape.block.z,
      .sharedMemBytes = shape.smem_bytes,
      .hStream = stream.raw(),
      .attrs = attributes,
      .numAttrs = count,
  };
  void* parameters[] = {const_cast<void*>(arguments)};  // the driver copies it and never writes
  const CUresult result = stream.driver().cuLaunchKernelEx(&config, function, parameters, nullptr);
  if (result == CUDA_SUCCESS) return;
  throw EngineError(
      ErrorCode::cuda,
      fmt::format("launching a kernel with grid {}x{}x{}, block {}x{}x{}, {} bytes of shared "
                  "memory, cluster {}x{}x{}: {}",
                  shape.grid.x, shape.grid.y, shape.grid.z, shape.block.x, shape.block.y,
                  shape.block.z, shape.smem_bytes, shape.cluster.x, shape.cluster.y,
                  shape.cluster.z, stream.driver().describe(result)));
}

}  // namespace ingot::cu
