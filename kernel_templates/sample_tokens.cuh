// The sampler on the device: the token that src/sampler chooses from the same logits, and on
// request log-probabilities. Penalties, bias, temperature, top-k, top-p, min-p, then the
// exponential race. Launch contract (host twin: launch_shape in sample_tokens.space.hpp)
//   grid (SPLIT, rows), all blocks of a row resident at once   block (THREADS)   cluster none
//   smem kSampleSmemBytes, dynamic   arch sm_80 and later   programmatic dependent launch: yes
//
// A block owns a range of ids and goes through it once per step; between steps the blocks of a row
// hand a few words to one another. Arithmetic is the host's, in double; exp and log may differ from
// it in the last place, which decides nothing unless two keys of the race are that close.
// Sums of weights (top-p) are integers of 2^-46, so they have no order; a sum that comes within
// rounding of the limit can keep one unlikely token more or less than the host.
// Everything is repeatable to the bit. A row with NaN or +inf, or without a possible token, reports
// it and chooses none; other rows are not touched by it.
#include "common/launch.cuh"
#include "common/philox.cuh"
#include "common/ptx.cuh"
#include "sample_tokens.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "sample_tokens.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(THREADS >= SAMPLE_BINS && THREADS <= 1024, "a thread per bin");

constexpr int WARPS = THREADS / 32;
constexpr double kFixedOne = 70368744177664.0;  // 2^46: a vocabulary of 2^17 fits 64 bits

__forceinline__ float infinity() {
  return __uint_as_float(0x7f800000u);
}

// Order of unsigned numbers = order of floats; the zeros are equal. Never of a NaN.
__forceinline__ u32 order_of(float x) {
  const u32 bits = __float_as_uint(x + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__forceinline__ float value_of(u32 order) {
  return __uint_as_float((order & 0x80000000u) != 0 ? order & 0x7fffffffu : ~order);
}
// Greatest = greatest logit, of equals the lowest id.
__forceinline__ u64 rank_of(float x, int id) {
  return static_cast<u64>(order_of(x)) << 32 | static_cast<u32>(~id);
}
__forceinline__ int id_of(u64 rank) {
  return static_cast<int>(~static_cast<u32>(rank));
}
__forceinline__ float logit_of(u64 rank) {
  return value_of(static_cast<u32>(rank >> 32));
}

struct Row {
  const SampleTokensArgs& args;
  const SampleRow& params;
  SampleShared& shared;
  const float* logits;  // raw
  const float* values;  // after penalties and bias
  int row, begin, end;  // quads of ids of this block
  int parity;           // of the exchange

  // Four neighbouring ids; past the vocabulary -inf, which nobody chooses before a real id.
  __forceinline__ float4 quad(const float* from, int q) const {
    if (4 * q + 3 < args.vocabulary) return *reinterpret_cast<const float4*>(from + 4 * q);
    return make_float4(from[4 * q], 4 * q + 1 < args.vocabulary ? from[4 * q + 1] : -infinity(),
                       4 * q + 2 < args.vocabulary ? from[4 * q + 2] : -infinity(), -infinity());
  }
  // visit(id, value) for this thread's share of the block's ids, ascending. Values are asked for
  // a round ahead.
  template <class Visit>
  __forceinline__ void each(const float* from, Visit visit) const {
    int q = begin + static_cast<int>(threadIdx.x);
    float4 next = q < end ? quad(from, q) : float4{};
#pragma unroll 1
    for (; q < end; q += THREADS) {
      const float4 four = next;
      if (q + THREADS < end) next = quad(from, q + THREADS);
      visit(4 * q, four.x);
      visit(4 * q + 1, four.y);
      visit(4 * q + 2, four.z);
      visit(4 * q + 3, four.w);
    }
  }
};

// ---- words of a block, and of the blocks of a row

// Words that are combined in any order: what one thread, block or row has to say. Zeros say
// nothing.
template <int COUNT>
struct Words {
  u64 word[COUNT];
};
// Combines those of all lanes of a warp; the same result in each.
template <int COUNT, class Combine>
__forceinline__ Words<COUNT> reduce_warp(Words<COUNT> mine, Combine combine) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    Words<COUNT> other;
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      other.word[i] = __shfl_xor_sync(0xffffffffu, mine.word[i], lanes);
    combine(mine, other);
  }
  return mine;
}
template <int COUNT, class Combine>
__forceinline__ Words<COUNT> reduce_block(const Row& r, Words<COUNT> mine, Combine combine) {
  static_assert(COUNT <= 2, "room for so many words of a warp");
  mine = reduce_warp(mine, combine);
  __syncthreads();  // earlier readers of the words are done
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      r.shared.warp_words[i][threadIdx.x / 32] = mine.word[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    mine.word[i] = lane < WARPS ? r.shared.warp_words[i][lane] : 0;
  return reduce_warp(mine, combine);
}

// Hands shared.mine[0 .. count) to the other blocks of the row; all threads call it after they
// wrote.
__forceinline__ void hand_on(Row& r, int count) {
  r.parity ^= 1;
  if constexpr (SPLIT == 1) {
    __syncthreads();
    return;
  }
  __syncthreads();
  u64* const to = r.args.exchange +
                  ((static_cast<i64>(r.row) * 2 + r.parity) * SPLIT + blockIdx.x) * SAMPLE_WORDS;
  for (int i = threadIdx.x; i < count; i += THREADS)
    ptx::store_relaxed(to + i, make_uint2(static_cast<u32>(r.shared.mine[i]),
                                          static_cast<u32>(r.shared.mine[i] >> 32)));
  __threadfence();
  __syncthreads();
  // The last to arrive sets the count back and starts the next turn: whatever SPLIT comes next
  // finds a count of zero.
  if (threadIdx.x == 0) {
    u32* const count = r.args.counters + 2 * r.row;
    u32* const turn = count + 1;
    const u32 this_turn = ptx::load_relaxed_pair(count).y;
    if (atomicAdd(count, 1u) == SPLIT - 1) {
      ptx::store_relaxed(count, 0u);
      __threadfence();
      ptx::store_relaxed(turn, this_turn + 1);
    } else {
      while (ptx::load_relaxed_pair(count).y == this_turn) {
      }
    }
    __threadfence();
  }
  __syncthreads();
}
// Word i that block `block` of the row handed on last.
__forceinline__ u64 word_of(const Row& r, int block, int i) {
  if constexpr (SPLIT == 1) return r.shared.mine[i];
  const uint2 word = ptx::load_relaxed_pair(
      r.args.exchange + ((static_cast<i64>(r.row) * 2 + r.parity) * SPLIT + block) * SAMPLE_WORDS +
      i);
  return static_cast<u64>(word.y) << 32 | word.x;
}
__forceinline__ u64 larger(u64 a, u64 b) {
  return a > b ? a : b;
}

// Combines the words of every thread of the row; the same result everywhere. combine(a, b) adds b
// to a.
template <int COUNT, class Combine>
__forceinline__ Words<COUNT> reduce_row(Row& r, Words<COUNT> mine, Combine combine) {
  mine = reduce_block(r, mine, combine);
  if constexpr (SPLIT == 1) return mine;
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      r.shared.mine[i] = mine.word[i];
  }
  hand_on(r, COUNT);
  const int block = static_cast<int>(threadIdx.x % 32);  // a lane asks for one
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    mine.word[i] = block < SPLIT ? word_of(r, block, i) : 0;
  return reduce_warp(mine, combine);
}

// ---- penalties and bias

// Rounded to float at each step, as the host does; no fused multiply-add.
__forceinline__ float penalized(const SampleRow& p, float logit, u32 count) {
  const u32 generated = count & 0x7fffu;
  if (p.repetition_penalty != 1.0 && count != 0) {
    const double wide = logit;
    logit = static_cast<float>(wide > 0 ? __ddiv_rn(wide, p.repetition_penalty)
                                        : __dmul_rn(wide, p.repetition_penalty));
  }
  if (generated != 0)
    logit = static_cast<float>(
        __dsub_rn(__dsub_rn(static_cast<double>(logit), p.presence_penalty),
                  __dmul_rn(p.frequency_penalty, static_cast<double>(generated))));
  return logit;
}

__forceinline__ void adjust(const Row& r) {
  const SampleRow& p = r.params;
  float* const to = r.args.adjusted + static_cast<i64>(r.row) * r.args.stride;
  const u16* const counts = r.args.counts + static_cast<i64>(r.row) * r.args.stride;
  r.each(r.logits, [&](int id, float logit) {
    if (id >= r.args.vocabulary) return;
    if (p.has_penalties != 0) logit = penalized(p, logit, counts[id]);
    to[id] = logit;
  });
  __syncthreads();
  // The first entry of an id adds those that name it again, in their order.
  const int* const ids = r.args.bias_ids + p.bias_begin;
  const double* const values = r.args.bias_values + p.bias_begin;
  for (int i = threadIdx.x; i < p.bias_count; i += THREADS) {
    const int id = ids[i];
    if (id / 4 < r.begin || id / 4 >= r.end) continue;
    bool again = false;
    for (int j = 0; j < i; ++j)
      again |= ids[j] == id;
    if (again) continue;
    float logit = to[id];
    for (int j = i; j < p.bias_count; ++j)
      if (ids[j] == id) logit = static_cast<float>(static_cast<double>(logit) + values[j]);
    to[id] = logit;
  }
  __syncthreads();
}

// The greatest of the logits that are numbers; how many are NaN or +inf.
struct Scan {
  u64 best;
  u64 bad;
};
__forceinline__ Scan scan(Row& r, const float* from) {
  u64 best = 0, bad = 0;
  r.each(from, [&](int id, float value) {
    if (!(value < infinity())) {
      ++bad;
    } else {
      best = larger(best, rank_of(value, id));
    }
  });
  const Words<2> all = reduce_row(r, Words<2>{{best, bad}}, [](Words<2>& a, const Words<2>& b) {
    a.word[0] = larger(a.word[0], b.word[0]);
    a.word[1] += b.word[1];
  });
  return {all.word[0], all.word[1]};
}
// What SampleResult::bad_logits says of a scan.
__forceinline__ int fault_of(const Scan& s) {
  if (s.bad != 0) return static_cast<int>(s.bad);
  return logit_of(s.best) == -infinity() ? -1 : 0;
}

// ---- top-k and top-p: the last token that stays, in the order of rank_of

// Weight of a token as a multiple of 2^-46.
struct Weigher {
  float max;
  double scale;
  __forceinline__ double operator()(float logit) const {
    return exp(__dmul_rn(static_cast<double>(logit) - static_cast<double>(max), scale));
  }
  __forceinline__ u64 fixed(float logit) const {
    return static_cast<u64>(__double2ll_rn((*this)(logit)*kFixedOne));
  }
};

// Adds the histograms of all copies and blocks into shared.histogram[0].
__forceinline__ void merge_histograms(Row& r) {
  __syncthreads();
  const int bin = threadIdx.x;
  if (bin < SAMPLE_BINS) {
    u64 sum = 0;
#pragma unroll
    for (int c = 0; c < SAMPLE_COPIES; ++c)
      sum += r.shared.histogram[c][bin];
    r.shared.mine[bin] = sum;
  }
  hand_on(r, SAMPLE_BINS);
  if (bin < SAMPLE_BINS) {
    u64 sum = 0;
#pragma unroll 8
    for (int block = 0; block < SPLIT; ++block)
      sum += word_of(r, block, bin);
    r.shared.histogram[0][bin] = sum;
  }
  __syncthreads();
}

// From the greatest bin down, the first at which `before` and the bins so far reach the goal:
// shared.found = {bin, amount before it, amount in it, amount of all}. If none does, the least bin
// that holds anything.
template <class Reached>
__forceinline__ void find_bin(Row& r, u64 before, Reached reached) {
  if (threadIdx.x < 32) {
    const int lane = threadIdx.x;
    u64 amounts[8], own = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      amounts[i] = r.shared.histogram[0][SAMPLE_BINS - 1 - (lane * 8 + i)];
      own += amounts[i];
    }
    u64 sum = own;  // of this lane and those before it
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const u64 other = __shfl_up_sync(0xffffffffu, sum, lanes);
      if (lane >= lanes) sum += other;
    }
    const u64 all = __shfl_sync(0xffffffffu, sum, 31);
    const u32 reaching = __ballot_sync(0xffffffffu, own != 0 && reached(before + sum));
    const u32 holding = __ballot_sync(0xffffffffu, own != 0);
    const int chosen = reaching != 0 ? __ffs(static_cast<int>(reaching)) - 1
                                     : 31 - __clz(static_cast<int>(holding));
    if (lane == chosen) {
      u64 at = before + sum - own;
      bool done = false;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (done || amounts[i] == 0) continue;
        r.shared.found[0] = SAMPLE_BINS - 1 - (lane * 8 + i);
        r.shared.found[1] = at;
        r.shared.found[2] = amounts[i];
        at += amounts[i];
        done = reached(at);
      }
      r.shared.found[3] = all;
    }
  }
  __syncthreads();
}

// A first sorting by distance from the greatest logit, an eighth of a unit of the exponent a bin:
// the leading bits of floats would put nearly all tokens in a few. Never rises as values fall.
struct Coarse {
  float max, scale;

  __forceinline__ int operator()(float value) const {
    const float below = (max - value) * scale;
    return below < SAMPLE_BINS - 1 ? SAMPLE_BINS - 1 - static_cast<int>(below) : 0;
  }
};

// The last rank that stays of `last_before`'s survivors, when amount(logit) of the ranks down to it
// have to reach a goal. goal(all) is asked once for the total; reached(sum, goal) ends the search.
template <class Amount, class Goal, class Reached>
__forceinline__ u64 cut(Row& r, const Coarse& coarse, u64 last_before, Amount amount, Goal goal_of,
                        Reached reached) {
  u32 prefix = 0;
  int coarse_bin = 0;
  u64 before = 0, in_bin = 0;
  double goal = 0;
#pragma unroll 1
  for (int shift = 32; shift >= 0; shift -= 8) {  // at 32 the coarse bins, then bits of the order
    __syncthreads();
    for (int i = threadIdx.x; i < SAMPLE_COPIES * SAMPLE_BINS; i += THREADS)
      r.shared.histogram[i / SAMPLE_BINS][i % SAMPLE_BINS] = 0;
    __syncthreads();
    u64* const copy = r.shared.histogram[threadIdx.x % SAMPLE_COPIES];
    r.each(r.values, [&](int id, float value) {
      const u64 rank = rank_of(value, id);
      int bin = coarse(value);
      if (rank < last_before) return;
      if (shift != 32) {
        const u32 order = static_cast<u32>(rank >> 32);
        if (bin != coarse_bin || (shift != 24 && (order ^ prefix) >> (shift + 8) != 0)) return;
        bin = static_cast<int>(order >> shift & 255u);
      }
      const u64 weight = amount(value);
      if (weight != 0) atomicAdd(copy + bin, weight);
    });
    merge_histograms(r);
    if (shift == 32) {
      // The goal needs the total first.
      find_bin(r, 0, [](u64) { return false; });
      goal = goal_of(r.shared.found[3]);
      __syncthreads();
    }
    find_bin(r, before, [&](u64 sum) { return reached(sum, goal); });
    if (shift == 32) {
      coarse_bin = static_cast<int>(r.shared.found[0]);
    } else {
      prefix |= static_cast<u32>(r.shared.found[0]) << shift;
    }
    before = r.shared.found[1];
    in_bin = r.shared.found[2];
    __syncthreads();
  }
  // All that is left has one logit: its first `wanted` ids stay.
  const u64 each_one = amount(value_of(prefix)), ties = in_bin / each_one;
  u64 wanted = 1;
  for (u64 most = ties; wanted < most;) {
    const u64 middle = wanted + (most - wanted) / 2;
    if (reached(before + middle * each_one, goal))
      most = middle;
    else
      wanted = middle + 1;
  }
  if (wanted == ties) {
    const u64 last = static_cast<u64>(prefix) << 32;  // every id
    return larger(last, last_before);
  }
  // The least id up to which there are as many: ids are halved.
  int low = 0, high = r.args.vocabulary - 1;
#pragma unroll 1
  while (low < high) {
    const int middle = low + (high - low) / 2;
    u64 count = 0;
    r.each(r.values, [&](int id, float value) {
      if (order_of(value) == prefix && id <= middle && rank_of(value, id) >= last_before) ++count;
    });
    count = reduce_row(r, Words<1>{{count}}, [](Words<1>& a, const Words<1>& b) {
              a.word[0] += b.word[0];
            }).word[0];
    if (count >= wanted)
      high = middle;
    else
      low = middle + 1;
  }
  return static_cast<u64>(prefix) << 32 | static_cast<u32>(~low);
}

// ---- the race

__forceinline__ int race(Row& r, float max, u64 last) {
  const SampleRow& p = r.params;
  const Weigher weigh{max, 1.0 / p.temperature};
  const double least =
      p.min_p > 0 ? __dadd_rn(static_cast<double>(max), __dmul_rn(p.temperature, log(p.min_p)))
                  : -static_cast<double>(infinity());
  // Most tokens cannot win, which floats tell, too: a weight's upper bound (an exponent of 8,000
  // rounds by 1e-3 at most) against a lower bound of what the best key asks for.
  constexpr float UP = 1.002f, DOWN = 0.999f;
  const float scale = static_cast<float>(weigh.scale);
  float best_low = -1.0f;
  double best_key = -1.0;
  int best = 0;
#pragma unroll 1
  for (int q = r.begin + static_cast<int>(threadIdx.x); q < r.end; q += THREADS) {
    const float4 four = r.quad(r.values, q);
    const float values[4] = {four.x, four.y, four.z, four.w};
    const u64 at = static_cast<u64>(p.position);
    const PhiloxBlock random =
        philox(static_cast<u32>(at), static_cast<u32>(at >> 32), static_cast<u32>(q), 0,
               static_cast<u32>(p.seed), static_cast<u32>(p.seed >> 32));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float value = values[e];
      const int id = 4 * q + e;
      if (static_cast<double>(value) < least || value == -infinity() || rank_of(value, id) < last)
        continue;
      const float rest = (static_cast<float>(~random.word[e]) + 0.5f) * (1.0f / 4294967296.0f);
      if (expf((value - max) * scale) * UP <= best_low * (rest * DOWN)) continue;
      const double u = (static_cast<double>(random.word[e]) + 0.5) * (1.0 / 4294967296.0);
      const double weight = weigh(value);
      // -ln(u) >= 1 - u: most tokens cannot win and need no logarithm.
      if (weight <= __dmul_rn(best_key, 1.0 - u)) continue;
      const double key = __ddiv_rn(weight, -log(u));
      if (key > best_key) {  // ids ascend: the lowest of equals stays
        best_key = key;
        best_low = static_cast<float>(key) * DOWN;
        best = id;
      }
    }
  }
  // Keys are not negative: their bits have their order. Of equals the lowest id wins.
  const u64 mine = best_key < 0 ? 0 : static_cast<u64>(__double_as_longlong(best_key)) + 1;
  const Words<2> winner =
      reduce_row(r, Words<2>{{mine, static_cast<u64>(static_cast<u32>(~best))}},
                 [](Words<2>& a, const Words<2>& b) {
                   if (b.word[0] > a.word[0] || (b.word[0] == a.word[0] && b.word[1] > a.word[1]))
                     a = b;
                 });
  return static_cast<int>(~static_cast<u32>(winner.word[1]));
}

// ---- log-probabilities of the raw logits

// A sum of doubles in one order: threads of a warp, warps, blocks.
__forceinline__ double sum_row(Row& r, double value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    value = __dadd_rn(value, __shfl_xor_sync(0xffffffffu, value, lanes));
  __syncthreads();
  if (threadIdx.x % 32 == 0)
    r.shared.warp_words[1][threadIdx.x / 32] = static_cast<u64>(__double_as_longlong(value));
  __syncthreads();
  if (threadIdx.x == 0) {
    double sum = 0;
    for (int w = 0; w < WARPS; ++w)
      sum = __dadd_rn(sum, __longlong_as_double(static_cast<i64>(r.shared.warp_words[1][w])));
    r.shared.mine[0] = static_cast<u64>(__double_as_longlong(sum));
  }
  hand_on(r, 1);
  double sum = 0;
#pragma unroll 8
  for (int block = 0; block < SPLIT; ++block)
    sum = __dadd_rn(sum, __longlong_as_double(static_cast<i64>(word_of(r, block, 0))));
  return sum;
}

__forceinline__ void report(Row& r, u64 best, int token, SampleResult& result) {
  const float max = logit_of(best);
  double sum = 0;
  r.each(r.logits, [&](int, float logit) {
    sum = __dadd_rn(sum, exp(static_cast<double>(logit) - static_cast<double>(max)));
  });
  const double log_sum = static_cast<double>(max) + log(sum_row(r, sum));
  const auto entry = [&](int id, float logit) {
    return SampleLogprob{id, logit, static_cast<float>(static_cast<double>(logit) - log_sum)};
  };
  const int count = min(min(r.params.logprobs, SAMPLE_MOST_LOGPROBS), r.args.vocabulary);
  u64 above = 0;  // the entry found last
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    u64 next = 0;
    r.each(r.logits, [&](int id, float logit) {
      const u64 rank = rank_of(logit, id);
      if (i == 0 || rank < above) next = larger(next, rank);
    });
    above = reduce_row(r, Words<1>{{next}}, [](Words<1>& a, const Words<1>& b) {
              a.word[0] = larger(a.word[0], b.word[0]);
            }).word[0];
    if (blockIdx.x == 0 && threadIdx.x == 0)
      result.top[i] = entry(id_of(above), r.logits[id_of(above)]);
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    result.chosen = entry(token, r.logits[token]);
    result.top_count = count;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sample_tokens(const __grid_constant__ SampleTokensArgs args) {
  release_successor();
  wait_for_predecessor();
  const int row = blockIdx.y, quads = (args.vocabulary + 3) / 4;
  const SampleRow params = args.rows[row];
  const float* const logits = args.logits + static_cast<i64>(row) * args.stride;
  const bool adjusts = params.has_penalties != 0 || params.bias_count > 0;
  Row r{args,
        params,
        *reinterpret_cast<SampleShared*>(ptx::dynamic_shared_memory()),
        logits,
        adjusts ? args.adjusted + static_cast<i64>(row) * args.stride : logits,
        row,
        static_cast<int>(static_cast<i64>(quads) * blockIdx.x / SPLIT),
        static_cast<int>(static_cast<i64>(quads) * (blockIdx.x + 1) / SPLIT),
        0};
  SampleResult& result = args.results[row];
  const bool writes = blockIdx.x == 0 && threadIdx.x == 0;
  const Scan raw = scan(r, logits);
  Scan chosen_from = raw;
  int fault = fault_of(raw);
  if (fault == 0 && adjusts) {
    adjust(r);
    chosen_from = scan(r, r.values);
    fault = fault_of(chosen_from);
  }
  if (fault != 0) {
    if (writes) {
      result.token = -1;
      result.bad_logits = fault;
    }
    return;
  }
  const float max = logit_of(chosen_from.best);
  int token = id_of(chosen_from.best);
  // Of a temperature below the normal numbers the reciprocal may be infinite.
  if (params.temperature >= 2.2250738585072014e-308) {
    u64 last = 0;
    const Coarse coarse{max, static_cast<float>(8.0 / params.temperature)};
    if (params.top_k > 0 && params.top_k < args.vocabulary)
      last = cut(
          r, coarse, last, [](float) { return static_cast<u64>(1); },
          [&](u64) { return static_cast<double>(params.top_k); },
          [](u64 sum, double goal) { return static_cast<double>(sum) >= goal; });
    if (params.top_p < 1) {
      const Weigher weigh{max, 1.0 / params.temperature};
      last = cut(
          r, coarse, last, [&](float logit) { return weigh.fixed(logit); },
          [&](u64 all) { return params.top_p * static_cast<double>(all); },
          [](u64 sum, double goal) { return static_cast<double>(sum) >= goal; });
    }
    token = race(r, max, last);
  }
  if (params.logprobs >= 0) report(r, raw.best, token, result);
  if (writes) {
    result.token = token;
    result.bad_logits = 0;
    if (params.has_penalties != 0) {
      u16& count = args.counts[static_cast<i64>(row) * args.stride + token];
      if ((count & 0x7fff) != 0x7fff) ++count;
    }
  }
}

}  // namespace ingot::kernels
