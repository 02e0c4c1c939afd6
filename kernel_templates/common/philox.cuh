#pragma once
// Philox4x32-10, the random numbers of the sampler: a block of four words as a pure function of
// counter and key. Host twin: src/sampler/philox.hpp.
#include "common/types.cuh"

namespace ingot::kernels {

struct PhiloxBlock {
  u32 word[4];
};

__forceinline__ PhiloxBlock philox(u32 c0, u32 c1, u32 c2, u32 c3, u32 k0, u32 k1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u32 high_a = __umulhi(0xD2511F53u, c0), low_a = 0xD2511F53u * c0;
    const u32 high_b = __umulhi(0xCD9E8D57u, c2), low_b = 0xCD9E8D57u * c2;
    c0 = high_b ^ c1 ^ k0;
    c1 = low_b;
    c2 = high_a ^ c3 ^ k1;
    c3 = low_a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace ingot::kernels
