#pragma once

#include <cstdint>

namespace ingot::test {

/// Device code of the smoke tests, and the arguments that each kernel takes by value.
inline constexpr const char* kSmokeSource = R"cuda(
struct BlockSumArgs {
  const float* from;  // [blocks, 256]
  float* to;          // [blocks]
};

// Sums 256 values per block through shared memory.
extern "C" __global__ void __launch_bounds__(256) block_sum(BlockSumArgs args) {
  __shared__ float partial[256];
  partial[threadIdx.x] = args.from[blockIdx.x * 256 + threadIdx.x];
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) args.to[blockIdx.x] = partial[0];
}

struct StepArgs {
  unsigned* values;  // [count]
  int count;
};

// One link of a chain: value = 3 * value + 1, in place, so that a link that starts before its
// predecessor's writes are visible leaves a wrong result.
extern "C" __global__ void __launch_bounds__(256) chain_step(StepArgs args) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < args.count) args.values[i] = 3u * args.values[i] + 1u;
}

struct ClusterArgs {
  unsigned* sums;  // [blocks]
};

// Each block of a cluster of two publishes its index in shared memory and adds its neighbour's.
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void __launch_bounds__(32) cluster_pair(ClusterArgs args) {
  __shared__ unsigned mine;
  if (threadIdx.x == 0) mine = blockIdx.x + 1;
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
  if (threadIdx.x == 0) {
    unsigned rank, address, theirs;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const unsigned local = static_cast<unsigned>(__cvta_generic_to_shared(&mine));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(local), "r"(rank ^ 1u));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(theirs) : "r"(address));
    args.sums[blockIdx.x] = mine + theirs;
  }
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
#endif

struct ExchangeArgs {
  unsigned* my_inbox;     // [2, 128] written by the peer
  unsigned* my_flag;      // last round that the peer has delivered
  unsigned* peer_inbox;   // the same two in the peer's memory
  unsigned* peer_flag;
  unsigned* report;       // [2] rounds done, values that were wrong
  unsigned rank, rounds;
};

// Two GPUs run one block each. Per round: put 128 words into the peer's inbox, raise its flag with
// st.release.sys, wait for our own flag with ld.acquire.sys, check what came. Two inboxes take
// turns: a peer can be one round ahead, never two. Gives up after about two seconds.
extern "C" __global__ void __launch_bounds__(128) exchange(ExchangeArgs args) {
  __shared__ unsigned seen;
  unsigned wrong = 0, round = 1;
  const long long patience = 4000000000ll;  // cycles
  for (; round <= args.rounds; ++round) {
    const unsigned slot = (round & 1) * 128 + threadIdx.x;
    args.peer_inbox[slot] = round * 1000u + args.rank * 500u + threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(args.peer_flag), "r"(round) : "memory");
      const long long start = clock64();
      unsigned flag = 0;
      do {
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(flag) : "l"(args.my_flag) : "memory");
      } while (flag < round && clock64() - start < patience);
      seen = flag;
    }
    __syncthreads();
    if (seen < round) break;
    const unsigned got = *reinterpret_cast<volatile unsigned*>(&args.my_inbox[slot]);
    wrong += got != round * 1000u + (args.rank ^ 1u) * 500u + threadIdx.x;
    __syncthreads();
  }
  atomicAdd(&args.report[1], wrong);
  if (threadIdx.x == 0) args.report[0] = round - 1;
}
)cuda";

struct BlockSumArgs {
  const float* from;
  float* to;
};
struct StepArgs {
  unsigned* values;
  int count;
};
struct ClusterArgs {
  unsigned* sums;
};
struct ExchangeArgs {
  unsigned* my_inbox;
  unsigned* my_flag;
  unsigned* peer_inbox;
  unsigned* peer_flag;
  unsigned* report;
  std::uint32_t rank, rounds;
};

}  // namespace ingot::test
