#pragma once
#include "common/types.cuh"

namespace ingot::kernels {

constexpr int MEMORY_READ_CHUNK = 16384;

struct MemoryReadArgs {
  const u8* from;  // 16-byte aligned
  i64 bytes;       // a multiple of 16; BULK: of MEMORY_READ_CHUNK. 0: an empty kernel
  u32* sink;       // written only when the data's exclusive or is one certain value
};

}  // namespace ingot::kernels
