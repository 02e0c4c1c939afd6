// The sum of all tensor parallel ranks' summands, rounded to bf16 once: the same bits on every
// rank, as everyone adds in the order of ranks in fp32. A rank's summand is the fp32 sum of its
// routed experts plus its share of the shared expert's output, or one of the two. Source: model
// specification sections 3.11 and 5. Launch contract (host twin: launch_shape in
// all_reduce.space.hpp)
//   grid (min(ceil(tokens * hidden / VECTOR / THREADS), BLOCKS))   block (THREADS)
//   cluster none   smem none   arch sm_80 and later   programmatic dependent launch: yes
//   all ranks launch the same exchanges in the same order; the kernels of one exchange wait for
//   each other: each runs on a card of its own, or all grids fit beside each other on one
//
// Ranks push: what one has to say lies in the others' inboxes, payload and count in one word, so
// one trip is all. An inbox has two halves by the parity of the count: the words of exchange n are
// overwritten in n + 2 by a rank whose n + 1 is done, which has heard from everyone's n + 1, which
// began when everyone's n had been read.
//
// NaN, infinity and their sums stay in their channel. A rank that does not answer within the limit
// leaves `out` undefined and the status word not LINK_GOOD: no launch waits from there on.
#include "all_reduce.args.h"
#include "common/bf16.cuh"
#include "common/launch.cuh"
#include "common/peer_wait.cuh"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "all_reduce.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(RANKS >= 2 && RANKS <= LINK_RANKS, "as many inboxes");
static_assert(VECTOR == 4 || VECTOR == 8, "whole words of two bf16, two words at a time");
static_assert(THREADS >= LINK_COUNTERS, "a thread per counter");
static_assert(BLOCKS <= LINK_COUNTERS, "a counter per block");
static_assert(HAS_SUMS || HAS_VALUES, "something to add");

constexpr int WORDS = HAS_SUMS ? VECTOR : VECTOR / 2;  // of a vector's summand
constexpr int RESULT_WORDS = VECTOR / 2;

struct Summand {
  u32 payload[WORDS];

  __forceinline__ float at(int i) const {
    if constexpr (HAS_SUMS) {
      return __uint_as_float(payload[i]);
    } else {
      return i % 2 == 0 ? low_to_float(payload[i / 2]) : high_to_float(payload[i / 2]);
    }
  }
};

// This rank's.
__forceinline__ Summand own_summand(const AllReduceArgs& args, i64 vector) {
  Summand own;
  Bf16Vector<VECTOR> values = {};
  if constexpr (HAS_VALUES) values = Bf16Vector<VECTOR>::load(args.values + vector * VECTOR);
  if constexpr (HAS_SUMS) {
#pragma unroll
    for (int i = 0; i < VECTOR; i += 4) {
      float4 sum = *reinterpret_cast<const float4*>(args.sums + vector * VECTOR + i);
      if constexpr (HAS_VALUES) {
        const u32 first = values.pairs[i / 2], second = values.pairs[i / 2 + 1];
        sum.x += low_to_float(first);
        sum.y += high_to_float(first);
        sum.z += low_to_float(second);
        sum.w += high_to_float(second);
      }
      own.payload[i] = __float_as_uint(sum.x);
      own.payload[i + 1] = __float_as_uint(sum.y);
      own.payload[i + 2] = __float_as_uint(sum.z);
      own.payload[i + 3] = __float_as_uint(sum.w);
    }
  } else {
#pragma unroll
    for (int i = 0; i < WORDS; ++i)
      own.payload[i] = values.pairs[i];
  }
  return own;
}

template <int COUNT>
__forceinline__ void send(u64* to, const u32 (&payload)[COUNT], u32 count) {
#pragma unroll
  for (int i = 0; i < COUNT; i += 2)
    peer::store_words(to + i, peer::stamped(payload[i], count),
                      peer::stamped(payload[i + 1], count));
}

// Whether all words are there; they are in `payload` then.
template <int COUNT>
__forceinline__ bool look(const u64* from, u32 (&payload)[COUNT], u32 count) {
  bool here = true;
#pragma unroll
  for (int i = 0; i < COUNT; i += 2) {
    u64 first, second;
    peer::load_words(from + i, first, second);
    here &= peer::count_of(first) == count && peer::count_of(second) == count;
    payload[i] = peer::payload_of(first);
    payload[i + 1] = peer::payload_of(second);
  }
  return here;
}

class Exchange {
 public:
  __forceinline__ Exchange(const AllReduceArgs& args, u32 count)
      : args_(args), count_(count), patience_(args.status, args.limit_ms) {}

  // Where rank `from` leaves words with rank `to` this time.
  __forceinline__ u64* place(int to, int from) const {
    return args_.inbox[to] +
           (static_cast<i64>(args_.halves == 2 ? count_ % 2 : 0) * RANKS + from) * args_.slot_words;
  }
  // The neighbour at distance `step`: so that not all write to one rank at a time.
  __forceinline__ int neighbour(int step) const {
    const int rank = args_.rank + step;
    return rank < RANKS ? rank : rank - RANKS;
  }

  // Rounded sum of one vector over the ranks, whose summands lie at `word` of each place.
  __forceinline__ Bf16Vector<VECTOR> sum(const Summand& own, i64 word) {
    Summand all[RANKS];
    for (;;) {
      bool here = true;
#pragma unroll
      for (int r = 0; r < RANKS; ++r) {
        if (r == args_.rank) {
          all[r] = own;
        } else {
          here &= look(place(args_.rank, r) + word, all[r].payload, count_);
        }
      }
      if (here || !patience_.look_again()) break;
    }
    Bf16Vector<VECTOR> result;
#pragma unroll
    for (int i = 0; i < VECTOR; i += 2) {
      float low = all[0].at(i), high = all[0].at(i + 1);
#pragma unroll
      for (int r = 1; r < RANKS; ++r) {
        low += all[r].at(i);
        high += all[r].at(i + 1);
      }
      result.pairs[i / 2] = pack_bf16(low, high);
    }
    return result;
  }

  __forceinline__ Bf16Vector<VECTOR> result_of(int owner, i64 word) {
    Bf16Vector<VECTOR> result;
    while (!look(place(args_.rank, owner) + word, result.pairs, count_) && patience_.look_again()) {
    }
    return result;
  }

  __forceinline__ void store(i64 vector, const Bf16Vector<VECTOR>& result) const {
    if (patience_.gave_up()) return;
    if constexpr (COPIES == 1) {
      result.store(args_.out + vector * VECTOR);
    } else {
      const int row_vectors = args_.hidden / VECTOR;
      const i64 token = vector / row_vectors, column = vector % row_vectors;
#pragma unroll
      for (int c = 0; c < COPIES; ++c)
        result.store(args_.out + ((token * COPIES + c) * row_vectors + column) * VECTOR);
    }
  }

  // Everyone gets every summand.
  __forceinline__ void one_shot(i64 vectors, i64 first, i64 step) {
    if (args_.parts & EXCHANGE_SEND) {
      for (i64 v = first; v < vectors; v += step) {
        const Summand own = own_summand(args_, v);
#pragma unroll
        for (int s = 1; s < RANKS; ++s)
          send(place(neighbour(s), args_.rank) + v * WORDS, own.payload, count_);
      }
    }
    if (args_.parts & EXCHANGE_RECEIVE) {
      for (i64 v = first; v < vectors; v += step)
        store(v, sum(own_summand(args_, v), v * WORDS));
    }
  }

  // A rank sums its share and hands the result on. One thread has the same places of all shares.
  __forceinline__ void two_shots(i64 vectors, i64 first, i64 step) {
    const i64 share = (vectors + RANKS - 1) / RANKS, results = share * WORDS;
    if (args_.parts & EXCHANGE_SEND) {
      for (i64 at = first; at < share; at += step) {
#pragma unroll
        for (int s = 1; s < RANKS; ++s) {
          const int owner = neighbour(s);
          const i64 v = owner * share + at;
          if (v < vectors)
            send(place(owner, args_.rank) + at * WORDS, own_summand(args_, v).payload, count_);
        }
      }
    }
    if (args_.parts & EXCHANGE_MIDDLE) {
      for (i64 at = first; at < share; at += step) {
        const i64 v = args_.rank * share + at;
        if (v >= vectors) break;
        const Bf16Vector<VECTOR> result = sum(own_summand(args_, v), at * WORDS);
        if (patience_.gave_up()) break;
#pragma unroll
        for (int s = 1; s < RANKS; ++s)
          send(place(neighbour(s), args_.rank) + results + at * RESULT_WORDS, result.pairs, count_);
        store(v, result);
      }
    }
    if (args_.parts & EXCHANGE_RECEIVE) {
      for (i64 at = first; at < share; at += step) {
#pragma unroll
        for (int s = 1; s < RANKS; ++s) {
          const int owner = neighbour(s);
          const i64 v = owner * share + at;
          if (v < vectors) store(v, result_of(owner, results + at * RESULT_WORDS));
        }
      }
    }
  }

 private:
  const AllReduceArgs& args_;
  u32 count_;
  peer::Patience patience_;
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    all_reduce(const __grid_constant__ AllReduceArgs args) {
  release_successor();
  wait_for_predecessor();
  const u32 count = peer::next_count(args.counts[blockIdx.x]);
  const i64 vectors = static_cast<i64>(args.tokens) * args.hidden / VECTOR;
  const i64 first = static_cast<i64>(blockIdx.x) * THREADS + threadIdx.x;
  const i64 step = static_cast<i64>(gridDim.x) * THREADS;
  Exchange exchange(args, count);
  if constexpr (SHOTS == 1) {
    exchange.one_shot(vectors, first, step);
  } else {
    exchange.two_shots(vectors, first, step);
  }
  __syncthreads();  // the whole block has read its count
  if (args.parts & EXCHANGE_RECEIVE) peer::write_counts(args.counts, count);
}

}  // namespace ingot::kernels
