#pragma once
#include "common/barrier.cuh"
#include "common/prefetch.args.h"

namespace ingot::kernels {

// Asks for everything in the list, shared out over `threads` threads. Before sm_90 nothing.
__forceinline__ void prefetch(const PrefetchList& list, int thread, int threads) {
#if __CUDA_ARCH__ >= 900
  constexpr u32 kChunk = 4096;
  if (list.count == 0) return;
  const u32 range = static_cast<u32>(thread) % static_cast<u32>(list.count);
  const u32 part = static_cast<u32>(thread) / static_cast<u32>(list.count);
  const u32 parts = static_cast<u32>(threads) / static_cast<u32>(list.count);
  if (part >= parts) return;
  const char* const from = static_cast<const char*>(list.at[range]);
  const u32 bytes = list.bytes[range];
  for (u32 at = part * kChunk; at < bytes; at += parts * kChunk)
    barrier::prefetch_bulk(from + at, min(kChunk, bytes - at));
#endif
}

}  // namespace ingot::kernels
