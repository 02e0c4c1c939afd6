#pragma once
// More between the blocks of a cluster (sm_90 and later). Shared addresses are alike in all blocks;
// `rank` counts them, x fastest.
#include "common/barrier.cuh"

namespace ingot::kernels::cluster {

// Arrives at the barrier at the same address in another block and announces bytes that copies and
// stores will complete, or have completed: the phase ends when all have arrived and nothing that
// was announced is missing. Orders nothing.
__forceinline__ void arrive_expect_remote(u32 barrier, u32 bytes, u32 rank) {
  asm volatile(
      "{.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %2;\n"
      "mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [remote], %1;}" ::"r"(
          barrier),
      "r"(bytes), "r"(rank)
      : "memory");
}

// The cluster's own barrier, in order with all accesses before and after: with the fence that
// barrier::arrive_cluster does without.
__forceinline__ void sync_cluster() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}
// The word at the shared address `from` of another block of the cluster.
__forceinline__ u32 load_remote(u32 from, u32 rank) {
  u32 value;
  asm volatile(
      "{.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %1, %2;\n"
      "ld.shared::cluster.u32 %0, [remote];}"
      : "=r"(value)
      : "r"(from), "r"(rank)
      : "memory");
  return value;
}

}  // namespace ingot::kernels::cluster
