// all_reduce of many tokens: the same sums, in the order of ranks and rounded to bf16 once, with
// the memory of both directions of a link taken up by payload alone. Source: model specification
// sections 3.11 and 5. Launch contract (host twin: launch_shape in all_reduce_wide.space.hpp)
//   grid (min(ceil(vectors of a share / THREADS), BLOCKS))   block (THREADS)   cluster none
//   smem none   arch sm_80 and later   programmatic dependent launch: yes
//   all ranks launch the same exchanges in the same order; the kernels of one exchange wait for
//   each other: each runs on a card of its own, or all grids fit beside each other on one
//
// all_reduce sends a count beside every four bytes, which saves a trip and doubles what travels.
// Here a rank leaves its summands of each share in the inbox of the share's owner, which adds them
// and writes the result into everyone's output, 16 bytes at a time; a flag per rank and block says
// that a block's part lies there, first of the summands, then of the results. A block has the same
// places of all shares, so it waits for its likes on other ranks only.
//
// Nothing is overwritten early: an owner writes to a rank's output once that rank has said that it
// read its summand of those places (the output may lie there), and that its earlier launches are
// done; a rank ends when all owners have written, and so have read what it left with them.
//
// NaN, infinity and their sums stay in their channel. A rank that does not answer within the limit
// leaves outputs undefined and the status word not LINK_GOOD: no launch waits from there on.
#include "all_reduce_wide.args.h"
#include "common/bf16.cuh"
#include "common/launch.cuh"
#include "common/peer_wait.cuh"
#include "common/ptx.cuh"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "all_reduce_wide.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(RANKS >= 2 && RANKS <= LINK_RANKS, "as many inboxes");
static_assert(THREADS >= LINK_COUNTERS, "a thread per counter");
static_assert(BLOCKS <= LINK_COUNTERS, "a counter per block");
static_assert(HAS_SUMS || HAS_VALUES, "something to add");

constexpr int VECTOR = HAS_SUMS ? 4 : 8;  // channels of a summand's 16 bytes
constexpr int SUMMANDS = 0, RESULTS = 1;  // what a flag is about

using Summand = uint4;

__forceinline__ float at(const Summand& summand, int i) {
  const u32 words[4] = {summand.x, summand.y, summand.z, summand.w};
  if constexpr (HAS_SUMS) {
    return __uint_as_float(words[i]);
  } else {
    return i % 2 == 0 ? low_to_float(words[i / 2]) : high_to_float(words[i / 2]);
  }
}

// This rank's.
__forceinline__ Summand own_summand(const AllReduceWideArgs& args, i64 vector) {
  Bf16Vector<VECTOR> values = {};
  if constexpr (HAS_VALUES) values = Bf16Vector<VECTOR>::load(args.values + vector * VECTOR);
  if constexpr (HAS_SUMS) {
    float4 sum = reinterpret_cast<const float4*>(args.sums)[vector];
    if constexpr (HAS_VALUES) {
      sum.x += low_to_float(values.pairs[0]);
      sum.y += high_to_float(values.pairs[0]);
      sum.z += low_to_float(values.pairs[1]);
      sum.w += high_to_float(values.pairs[1]);
    }
    return make_uint4(__float_as_uint(sum.x), __float_as_uint(sum.y), __float_as_uint(sum.z),
                      __float_as_uint(sum.w));
  } else {
    return make_uint4(values.pairs[0], values.pairs[1], values.pairs[2], values.pairs[3]);
  }
}

class Exchange {
 public:
  __forceinline__ Exchange(const AllReduceWideArgs& args, u32 count)
      : args_(args),
        count_(count),
        vectors_(static_cast<i64>(args.tokens) * args.hidden / VECTOR),
        share_((vectors_ + RANKS - 1) / RANKS),
        first_(static_cast<i64>(blockIdx.x) * THREADS + threadIdx.x),
        step_(static_cast<i64>(gridDim.x) * THREADS) {}

  // Leaves this rank's summands with the owners of their shares.
  __forceinline__ void send() const {
#pragma unroll 1
    for (int s = 1; s < RANKS; ++s) {
      const int owner = neighbour(s);
      const i64 share = owner * share_, end = min(share_, vectors_ - share);
      Summand* const to = inbox(owner, args_.rank);
#pragma unroll 4
      for (i64 v = first_; v < end; v += step_)
        to[v] = own_summand(args_, share + v);
    }
  }

  // Adds the own share, and writes it into everyone's output.
  __forceinline__ void add() const {
    const i64 share = args_.rank * share_, end = min(share_, vectors_ - share);
#pragma unroll 2
    for (i64 v = first_; v < end; v += step_) {
      Summand all[RANKS];
#pragma unroll
      for (int r = 0; r < RANKS; ++r)
        all[r] = r == args_.rank ? own_summand(args_, share + v) : inbox(args_.rank, r)[v];
      Bf16Vector<VECTOR> result;
#pragma unroll
      for (int i = 0; i < VECTOR; i += 2) {
        float low = at(all[0], i), high = at(all[0], i + 1);
#pragma unroll
        for (int r = 1; r < RANKS; ++r) {
          low += at(all[r], i);
          high += at(all[r], i + 1);
        }
        result.pairs[i / 2] = pack_bf16(low, high);
      }
#pragma unroll
      for (int s = 0; s < RANKS; ++s)
        store(args_.out[neighbour(s)], share + v, result);
    }
  }

  // Says to all ranks that this block's part lies there. Called by the whole block.
  __forceinline__ void tell(int about) const {
    __syncthreads();
    // One thread's release covers what the barrier has shown it of the others.
    const int to = static_cast<int>(threadIdx.x);
    if (to < RANKS && to != args_.rank)
      peer::store_release(flag(args_.flags[to], about, args_.rank), count_);
  }
  // Until all ranks have said so. False, to the whole block, where one has not.
  __forceinline__ bool hear(int about) const {
    const int from = static_cast<int>(threadIdx.x);
    bool silent = false;
    if (from < RANKS && from != args_.rank) {
      peer::Patience patience(args_.status, args_.limit_ms);
      const u32* const said = flag(args_.flags[args_.rank], about, from);
      while (!silent && peer::load_acquire(said) != count_)
        silent = !patience.look_again();
    }
    return !ptx::sync_threads_or(0, THREADS, silent);
  }

 private:
  // Not all write to one rank at a time.
  __forceinline__ int neighbour(int distance) const {
    const int rank = args_.rank + distance;
    return rank < RANKS ? rank : rank - RANKS;
  }
  __forceinline__ Summand* inbox(int owner, int from) const {
    return reinterpret_cast<Summand*>(args_.inbox[owner] + from * args_.slot_bytes);
  }
  __forceinline__ static u32* flag(u32* flags, int about, int from) {
    return flags + (about * RANKS + from) * LINK_COUNTERS + blockIdx.x;
  }
  __forceinline__ void store(bf16* out, i64 vector, const Bf16Vector<VECTOR>& result) const {
    if constexpr (COPIES == 1) {
      result.store(out + vector * VECTOR);
    } else {
      const int row_vectors = args_.hidden / VECTOR;
      const i64 token = vector / row_vectors, column = vector % row_vectors;
#pragma unroll
      for (int c = 0; c < COPIES; ++c)
        result.store(out + ((token * COPIES + c) * row_vectors + column) * VECTOR);
    }
  }

  const AllReduceWideArgs& args_;
  const u32 count_;
  const i64 vectors_, share_, first_, step_;
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    all_reduce_wide(const __grid_constant__ AllReduceWideArgs args) {
  release_successor();
  wait_for_predecessor();
  const u32 count = peer::next_count(args.counts[blockIdx.x]);
  const Exchange exchange(args, count);
  exchange.send();
  exchange.tell(SUMMANDS);
  if (exchange.hear(SUMMANDS)) {
    exchange.add();
    exchange.tell(RESULTS);
    exchange.hear(RESULTS);
  }
  __syncthreads();  // the whole block has read its count
  peer::write_counts(args.counts, count);
}

}  // namespace ingot::kernels
