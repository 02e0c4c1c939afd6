#pragma once
// mbarriers (sm_80 and later), bulk copies that complete on them, and clusters (sm_90 and later).
#include "common/types.cuh"

namespace ingot::kernels::barrier {

// `arrivals` arrivals (and all bytes announced in them) complete a phase.
__forceinline__ void init(u32 barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised barriers visible to the copy engine and to the cluster.
__forceinline__ void publish_init() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
__forceinline__ void arrive(u32 barrier) {
  asm volatile("{.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];}" ::"r"(barrier)
               : "memory");
}
// A warp's arrival: the accesses of all its lanes are done. It counts as WARP_ARRIVALS. One lane
// speaks for the warp; racecheck credits an arrival to the thread that makes it and reports the
// other lanes' accesses, so that under INGOT_EVERY_LANE_ARRIVES each lane speaks for itself.
#ifdef INGOT_EVERY_LANE_ARRIVES
constexpr int WARP_ARRIVALS = 32;
#else
constexpr int WARP_ARRIVALS = 1;
#endif
__forceinline__ void arrive_warp(u32 barrier, int lane) {
  __syncwarp();
  if (WARP_ARRIVALS > 1 || lane == 0) arrive(barrier);
}
// Announces bytes that copies will complete, before they start and before the arrival.
__forceinline__ void expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Arrives and announces bytes that copies will complete.
__forceinline__ void arrive_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Arrives when this thread's copies with copy16_async and copy8_async so far have landed; counts as
// one of the barrier's arrivals.
__forceinline__ void arrive_when_copied(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}
// Waits for the end of the phase of that parity. A fresh barrier has finished "phase -1", parity 1.
__forceinline__ void wait(u32 barrier, u32 parity) {
  u32 done;
  do {
    asm volatile(
        "{.reg .pred p;\n"
#if __CUDA_ARCH__ >= 900
        "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
#else
        "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
#endif
        "selp.u32 %0, 1, 0, p;}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (done == 0);
}
// What ordinary stores of this thread wrote to shared memory becomes visible to the tensor cores
// and the copy engine; needed before the barrier that tells them.
__forceinline__ void publish_to_async_proxy() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// L2 policies: a weight is read once per step, so it must not push out what is read again.
__forceinline__ u64 evict_first_policy() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// `bytes`: a multiple of 16; both addresses 16-byte aligned.
__forceinline__ void copy_bulk(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
__forceinline__ void copy_bulk(u32 to, const void* from, u32 bytes, u32 barrier, u64 policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
// Brings what will be copied soon to the L2. `bytes`: a multiple of 16; `from` 16-byte aligned.
__forceinline__ void prefetch_bulk(const void* from, u32 bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
// One read of global memory, written to the same address in every block of `ranks`, completing on
// the barrier at the same address in each.
__forceinline__ void copy_bulk_multicast(u32 to, const void* from, u32 bytes, u32 barrier,
                                         u16 ranks, u64 policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1], %2, [%3], %4, %5;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "h"(ranks), "l"(policy)
      : "memory");
}

// Bulk stores, of the thread that asks for them: 16-byte aligned, a multiple of 16 bytes. What
// ordinary stores wrote to shared memory is theirs after publish_to_async_proxy.
__forceinline__ void store_bulk(void* to, u32 from, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}
__forceinline__ void commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until the thread's stores have read shared memory, or have been done.
__forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__forceinline__ void wait_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Arrives at the barrier at the same address in another block of the cluster. Orders nothing but
// this thread's earlier reads: who arrives here has only read. (With release at cluster scope the
// compiler puts a fence of the whole GPU in front, about a microsecond.)
__forceinline__ void arrive_remote(u32 barrier, u32 rank) {
  asm volatile(
      "{.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// Stores 16 bytes at the shared address `to` of another block of the cluster; they complete on the
// barrier at `barrier` there.
__forceinline__ void store_remote(u32 to, uint4 value, u32 barrier, u32 rank) {
  asm volatile(
      "{.reg .b32 remote, remote_barrier;\n"
      "mapa.shared::cluster.u32 remote, %0, %6;\n"
      "mapa.shared::cluster.u32 remote_barrier, %5, %6;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32"
      " [remote], {%1, %2, %3, %4}, [remote_barrier];}" ::"r"(to),
      "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "r"(barrier), "r"(rank)
      : "memory");
}

// Copies `bytes` of shared memory to the shared address `to` of another block of the cluster; they
// complete on the barrier at `barrier` there.
__forceinline__ void copy_remote(u32 to, u32 from, u32 bytes, u32 barrier, u32 rank) {
  asm volatile(
      "{.reg .b32 remote, remote_barrier;\n"
      "mapa.shared::cluster.u32 remote, %0, %4;\n"
      "mapa.shared::cluster.u32 remote_barrier, %3, %4;\n"
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
      " [remote], [%1], %2, [remote_barrier];}" ::"r"(to),
      "r"(from), "r"(bytes), "r"(barrier), "r"(rank)
      : "memory");
}

// The cluster's own barrier, in two halves: all threads of all its blocks that have not left
// arrive. Orders no memory but what fences before it publish: a release here would be a fence of
// the whole GPU, about a microsecond.
__forceinline__ void arrive_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__forceinline__ void wait_cluster() {
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

}  // namespace ingot::kernels::barrier
