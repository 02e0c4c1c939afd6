#pragma once
// Which tokens meet which expert, made anew by every block from the router's ids. Pairs (token,
// expert) are in the order of expert, then token: independent of timing, so that every later sum
// has a fixed order. A token block is up to NMAX tokens of one expert.
// The family's parameters are in scope.
#include "common/ptx.cuh"
#include "common/types.cuh"
#include "moe_decode.args.h"

namespace ingot::kernels::moe {

constexpr int MOST_PAIRS = TOPK * BATCH;
constexpr int MOST_BLOCKS = moe_most_blocks(EXPERTS, TOPK, BATCH, NMAX);
constexpr bool RESIDENT = moe_resident(TOPK, BATCH, NMAX);
constexpr int SEGMENT_STAGES = moe_segment_stages(INTER, STAGE_JOBS);
constexpr int SEGMENT_BLOCKS = moe_segment_blocks(INTER, STAGE_JOBS);

// Where both inputs fit, gate and up take two token blocks of an expert together, strip by strip:
// the second reading of a strip follows the first and comes from L2.
constexpr bool COUPLES = !RESIDENT && X_BUFFERS == 2 && BATCH > NMAX;
constexpr int COUPLE_SHIFT = 14;
enum Couple { ALONE, FIRST_OF_TWO, SECOND_OF_TWO };
static_assert(EXPERTS <= 1 << COUPLE_SHIFT, "a couple's bits are above the expert");

constexpr bool WEIGHTS_KEPT = moe_keeps_weights(BATCH);

struct Plan {
  int blocks;             // token blocks
  int most_tokens;        // of a block
  int most_segment_rows;  // pairs of the blocks of a segment
  u32 before_second;      // what this block found at the second grid barrier
  u32 scan[27];
  float weight[WEIGHTS_KEPT ? MOST_PAIRS : 1];                 // of a pair
  u16 expert_couple[MOST_BLOCKS];                              // of a block
  u16 first[MOST_BLOCKS], count[MOST_BLOCKS];                  // of a block: pairs
  u16 token[MOST_PAIRS], slot[MOST_PAIRS], block[MOST_PAIRS];  // of a pair; slot of the ids

  __forceinline__ int expert(int v) const {
    return COUPLES ? expert_couple[v] & ((1 << COUPLE_SHIFT) - 1) : expert_couple[v];
  }
  __forceinline__ int couple(int v) const {
    return COUPLES ? expert_couple[v] >> COUPLE_SHIFT : ALONE;
  }
  __forceinline__ int segments() const { return (blocks + SEGMENT_BLOCKS - 1) / SEGMENT_BLOCKS; }
  // Pairs of segment `s`.
  __forceinline__ int segment_rows(int s) const {
    const int last = min(s * SEGMENT_BLOCKS + SEGMENT_BLOCKS, blocks) - 1;
    return first[last] + count[last] - first[s * SEGMENT_BLOCKS];
  }

  // By one warp, a pair per lane.
  __forceinline__ void make_in_warp(const int* ids, int pairs, int lane) {
    const int id = lane < pairs ? ptx::load_int(ids + lane) : EXPERTS + lane;
    int rank = 0, at = 0, begin = 0, tokens = 0;
    bool leads = true;
    for (int q = 0; q < pairs; ++q)
      if (__shfl_sync(~0u, id, q) == id && q < lane) leads = false;
    for (int q = 0; q < pairs; ++q) {
      const int other = __shfl_sync(~0u, id, q);
      const int other_leads = __shfl_sync(~0u, static_cast<int>(leads), q);
      rank += other < id || (other == id && q < lane) ? 1 : 0;
      begin += other < id ? 1 : 0;
      at += other < id && other_leads != 0 ? 1 : 0;
      tokens += other == id ? 1 : 0;
    }
    if (lane < pairs) {
      token[rank] = static_cast<u16>(lane / TOPK);
      slot[rank] = static_cast<u16>(lane);
      block[rank] = static_cast<u16>(at);
      if (leads) {
        expert_couple[at] = static_cast<u16>(id);
        first[at] = static_cast<u16>(begin);
        count[at] = static_cast<u16>(tokens);
      }
    }
    const int distinct = __popc(__ballot_sync(~0u, leads && lane < pairs));
    const int most = __reduce_max_sync(~0u, lane < pairs ? tokens : 0);
    if (lane == 0) {
      blocks = distinct;
      most_tokens = most;
      most_segment_rows = min(SEGMENT_BLOCKS * most, pairs);
    }
    __syncwarp();
  }

  // By all THREADS threads of the block.
  // @param scratch  moe_plan_scratch_bytes of shared memory
  template <int THREADS>
  __forceinline__ void make_in_block(const int* ids, int tokens, void* scratch, int thread) {
    constexpr int IDS = (MOST_PAIRS + THREADS - 1) / THREADS, WORDS = (BATCH + 31) / 32;
    constexpr int EXPERT_WARPS = EXPERTS / 32;
    static_assert(EXPERTS % 32 == 0 && EXPERTS <= THREADS && EXPERT_WARPS <= 27,
                  "a thread has one expert");
    u32* bits = static_cast<u32*>(scratch);  // [EXPERTS][WORDS] tokens of an expert
    u16* first_pair = reinterpret_cast<u16*>(bits + EXPERTS * WORDS);
    u16* first_block = first_pair + EXPERTS;
    const int warp = thread / 32, lane = thread % 32, pairs = TOPK * tokens;
    int id[IDS];
#pragma unroll
    for (int i = 0; i < IDS; ++i) {
      const int p = i * THREADS + thread;
      id[i] = p < pairs ? ptx::load_int(ids + p) : -1;
    }
    for (int i = thread; i < EXPERTS * WORDS; i += THREADS)
      bits[i] = 0;
    if (thread == 0) most_tokens = most_segment_rows = 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < IDS; ++i)
      if (id[i] >= 0) {
        const int t = (i * THREADS + thread) / TOPK;
        atomicOr(&bits[id[i] * WORDS + t / 32], 1u << (t % 32));
      }
    __syncthreads();
    int mine = 0;
    u32 own = 0, running = 0;  // pairs, and blocks in the high half
    if (warp < EXPERT_WARPS) {
#pragma unroll
      for (int w = 0; w < WORDS; ++w)
        mine += __popc(bits[thread * WORDS + w]);
      own = static_cast<u32>(mine) | (static_cast<u32>((mine + NMAX - 1) / NMAX) << 16);
      running = own;
#pragma unroll
      for (int lanes = 1; lanes < 32; lanes *= 2) {
        const u32 lower = __shfl_up_sync(~0u, running, lanes);
        if (lane >= lanes) running += lower;
      }
      if (lane == 31) scan[warp] = running;
      const int most = __reduce_max_sync(~0u, min(mine, NMAX));
      if (lane == 0) atomicMax(&most_tokens, most);
    }
    __syncthreads();
    if (warp < EXPERT_WARPS) {
      u32 before = 0;
#pragma unroll
      for (int w = 0; w < EXPERT_WARPS; ++w)
        before += w < warp ? scan[w] : 0;
      const u32 begin = before + running - own;
      int pair = static_cast<int>(begin & 0xffffu), at = static_cast<int>(begin >> 16);
      first_pair[thread] = static_cast<u16>(pair);
      first_block[thread] = static_cast<u16>(at);
      bool second = false;
      for (int left = mine; left > 0; left -= NMAX, pair += NMAX, ++at) {
        const int role = !COUPLES      ? ALONE
                         : second      ? SECOND_OF_TWO
                         : left > NMAX ? FIRST_OF_TWO
                                       : ALONE;
        second = role == FIRST_OF_TWO;
        expert_couple[at] = static_cast<u16>(thread | role << COUPLE_SHIFT);
        first[at] = static_cast<u16>(pair);
        count[at] = static_cast<u16>(min(left, NMAX));
      }
      if (thread == EXPERTS - 1) blocks = static_cast<int>((before + running) >> 16);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < IDS; ++i)
      if (id[i] >= 0) {
        const int p = i * THREADS + thread, t = p / TOPK, e = id[i];
        int rank = 0;
#pragma unroll
        for (int w = 0; w < WORDS; ++w) {
          const u32 lower = w < t / 32 ? ~0u : w == t / 32 ? (1u << (t % 32)) - 1 : 0u;
          rank += __popc(bits[e * WORDS + w] & lower);
        }
        const int pair = first_pair[e] + rank;
        token[pair] = static_cast<u16>(t);
        slot[pair] = static_cast<u16>(p);
        block[pair] = static_cast<u16>(first_block[e] + rank / NMAX);
      }
    for (int s = thread; s * SEGMENT_BLOCKS < blocks; s += THREADS)
      atomicMax(&most_segment_rows, segment_rows(s));
    __syncthreads();
  }
};
static_assert(MOE_BARRIERS * 8 + sizeof(Plan) <= moe_plan_bytes(EXPERTS, TOPK, BATCH, NMAX),
              "moe_plan_bytes counts it");

}  // namespace ingot::kernels::moe
