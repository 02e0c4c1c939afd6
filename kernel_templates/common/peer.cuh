#pragma once
// Words that ranks leave in each other's memory: on other cards that this one reaches, or on this
// one. Scope is the system everywhere; there are no remote atomics, which PCIe does not have.
#include "common/types.cuh"

namespace ingot::kernels::peer {

// A word of 64 bits is written and seen whole. Four bytes of payload and four of the count of the
// exchange that they belong to: who reads the count it waits for has the payload too, with no
// fence.
__forceinline__ u64 stamped(u32 payload, u32 count) {
  return static_cast<u64>(count) << 32 | payload;
}
__forceinline__ u32 payload_of(u64 word) {
  return static_cast<u32>(word);
}
__forceinline__ u32 count_of(u64 word) {
  return static_cast<u32>(word >> 32);
}

// Two words, 16-byte aligned, each whole by itself.
__forceinline__ void store_words(u64* to, u64 first, u64 second) {
  asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(first), "l"(second)
               : "memory");
}
__forceinline__ void load_words(const u64* from, u64& first, u64& second) {
  asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(first), "=l"(second)
               : "l"(from)
               : "memory");
}

// A count behind ordinary stores: the acquire of one thread sees what its writer had seen written.
__forceinline__ void store_release(u32* to, u32 value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__forceinline__ u32 load_acquire(const u32* from) {
  u32 value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__forceinline__ void store_relaxed(u32* to, u32 value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__forceinline__ u32 load_relaxed(const u32* from) {
  u32 value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

__forceinline__ u64 now_ns() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
// Between two looks at what another rank is to write.
__forceinline__ void pause() {}

}  // namespace ingot::kernels::peer
