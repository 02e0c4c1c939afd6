#pragma once
// What the sparse MLA decode families share: a row's key lists, entries in the pools, the scales'
// power-of-two units, and how the pieces of a row's keys become one result. Parameters of the KV
// layout (WINDOW_PAGE_ENTRIES … SCALES_BESIDE) come from the family.
#include "common/bf16.cuh"
#include "common/f16.cuh"
#include "common/ptx.cuh"
#include "common/rope.cuh"
#include "common/types.cuh"
#include "sparse_mla_decode.args.h"

namespace ingot::kernels::sparse_mla {

constexpr float LOG2_E = 1.4426950408889634f;
// Scores are kept in base 2: 512^-0.5 * log2(e).
constexpr float SCORE_SCALE = 0.04419417382415922f * LOG2_E;
__forceinline__ float negative_infinity() {
  return __uint_as_float(0xff800000u);
}

// ---- a row's keys: its window, then the selected ones

struct Keys {
  const int* window;
  const int* selected;
  int window_count, count;

  // With the counts not yet known: as if both lists were full.
  __forceinline__ Keys(const SparseMlaDecodeArgs& args, int row)
      : window(args.window_indices + static_cast<i64>(row) * args.window_slots),
        selected(args.selected_indices + static_cast<i64>(row) * args.selected_slots),
        window_count(args.window_slots),
        count(args.window_slots + args.selected_slots) {}

  // Whether the real counts differ from those assumed.
  __forceinline__ bool set_counts(int in_window, int in_selected) {
    const bool differ = in_window != window_count || in_window + in_selected != count;
    window_count = in_window;
    count = in_window + in_selected;
    return differ;
  }
  // Entry of a key below `end`, itself at most count; -1 for an unused slot and past the end.
  __forceinline__ int index(int key, int end) const {
    return key < end
               ? ptx::load_int(key < window_count ? window + key : selected + (key - window_count))
               : -1;
  }
};
__forceinline__ int selected_count(const SparseMlaDecodeArgs& args, int row) {
  return args.selected_slots > 0 ? ptx::load_int(args.selected_counts + row) : 0;
}

// Keys [begin, end) of piece `piece` of PIECES equal ones, to multiples of 8.
struct Piece {
  int begin, end;
};
template <int PIECES>
__forceinline__ Piece piece_of(int count, int piece) {
  const int keys = (count + PIECES * 8 - 1) / (PIECES * 8) * 8;
  const int begin = min(piece * keys, count);
  return {begin, min(begin + keys, count)};
}

// ---- scales
// A key's unit 2^u is at least its largest group scale over 2^HEADROOM, so that group scales
// relative to it, 2^(e - u), and codes times them are f16 numbers. Softmax weights are kept
// relative to the largest product (weight times unit) of their head, not to the largest weight:
// what f16 then flushes is below 2^-30 of the largest term of the sum, whatever the scales are.

struct Unit {
  int exponent;  // u
  __forceinline__ static Unit of_inverse(float value) {
    return {127 - (__float_as_int(value) >> 23)};
  }
  __forceinline__ float value() const { return __int_as_float((exponent + 127) << 23); }
  __forceinline__ float inverse() const { return __int_as_float((127 - exponent) << 23); }
};
// The largest of a key's 7 scale bytes.
__forceinline__ int largest_scale(uint2 scales) {
  const u32 pairs = __vmaxu2(__vmaxu2(scales.x & 0x00ff00ffu, (scales.x >> 8) & 0x00ff00ffu),
                             __vmaxu2(scales.y & 0x00ff00ffu, (scales.y >> 8) & 0x000000ffu));
  return static_cast<int>(max(pairs & 0xffffu, pairs >> 16));
}
template <int HEADROOM, int FLOOR>
__forceinline__ Unit unit_of(uint2 scales) {
  return {min(max(largest_scale(scales) - 127 - HEADROOM, FLOOR), 120)};
}
// 2^(scale - 127 - u) as f16 in both halves; 0 below 2^-24. Of unused slots anything finite.
__forceinline__ u32 relative_scale(u32 scale_byte, Unit unit) {
  const int exponent = min(max(static_cast<int>(scale_byte) - unit.exponent, 0), 142);
  const float value = __int_as_float(exponent << 23);
  return pack_f16(value, value);
}
__forceinline__ u32 scale_byte(uint2 scales, int group) {
  return ((group < 4 ? scales.x : scales.y) >> (8 * (group & 3))) & 0xffu;
}

// ---- results of pieces
// A piece has per head its running maximum m, l = sum 2^(score - m) and O = sum 2^(score - m) * v.
// A piece without keys has m = -inf, l = 0, O = 0.

// Blocks of one row pass partial results through global memory, and the word that arrives is its
// own flag: the receiver polls until no word is EMPTY, and empties it again. Each word has exactly
// one receiver. All blocks of the launch must be resident at once (checked by the host). Arithmetic
// never yields this NaN pattern: the hardware's NaN is 0x7fffffff.
constexpr u32 EMPTY = 0xffffffffu;

__forceinline__ bool has_arrived(uint4 v) {
  return v.x != EMPTY && v.y != EMPTY && v.z != EMPTY && v.w != EMPTY;
}
__forceinline__ float2 receive(float2* from) {
  uint2 v;
  do {
    v = ptx::load_relaxed_pair(from);
  } while (v.x == EMPTY || v.y == EMPTY);
  ptx::store_relaxed(from, make_uint2(EMPTY, EMPTY));
  return make_float2(__uint_as_float(v.x), __uint_as_float(v.y));
}
__forceinline__ void send(float* to, float value) {
  ptx::store_relaxed(to, __float_as_uint(value));
}
__forceinline__ void send(float* to, float first, float second) {
  ptx::store_relaxed(to, make_uint2(__float_as_uint(first), __float_as_uint(second)));
}

// The pieces of one head, one in each of the first PIECES lanes of a group of LANES: (m, l) in, the
// factor of that piece's O out. Sums go over the lanes in a fixed tree. sink: in natural units, or
// -inf.
template <int PIECES>
struct Merge {
  static_assert(PIECES <= 32, "a lane has one piece of a head");
  static constexpr int lanes() {
    int lanes = 1;
    while (lanes < PIECES)
      lanes *= 2;
    return lanes;
  }
  static constexpr int LANES = lanes(), HEADS = 32 / LANES;  // of a warp at once

  __forceinline__ static float factor(float2 sums, float sink) {
    const float sink2 = sink * LOG2_E;
    float largest = fmaxf(sums.x, sink2);
#pragma unroll
    for (int lanes = LANES / 2; lanes > 0; lanes /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, lanes));
    if (largest == negative_infinity()) largest = 0.0f;  // nothing at all: terms are 0, not NaN
    const float weight = exp2_approx(sums.x - largest);
    float total = weight * sums.y;
#pragma unroll
    for (int lanes = LANES / 2; lanes > 0; lanes /= 2)
      total += __shfl_xor_sync(0xffffffffu, total, lanes);
    total += exp2_approx(sink2 - largest);
    return total == 0.0f ? 0.0f : weight / total;
  }
  // The head that a thread merges first.
  __forceinline__ static int first_head(int thread) {
    return thread / 32 * HEADS + thread % 32 / LANES;
  }
  // Its sink, to be asked for early where it comes from global memory.
  template <bool HAS_SINK, int TILE_HEADS>
  __forceinline__ static float first_sink(const float* sinks, int thread) {
    const int head = first_head(thread);
    return HAS_SINK && head < TILE_HEADS ? ptx::load_float(sinks + head) : negative_infinity();
  }
  // All heads of a tile by THREADS threads. The (m, l) that this thread merges first are given;
  // `sums_of(piece, head)` gets those of heads beyond one round of all threads.
  template <bool HAS_SINK, int TILE_HEADS, int THREADS, class SumsOf>
  __forceinline__ static void factors(float (*to)[TILE_HEADS], const float* sinks, float first_sink,
                                      float2 first_sums, int thread, SumsOf&& sums_of) {
    constexpr int AT_ONCE = THREADS / 32 * HEADS;
    const int piece = thread % LANES;
#pragma unroll
    for (int first = 0; first < TILE_HEADS; first += AT_ONCE) {
      const int head = first + first_head(thread);
      const bool exists = head < TILE_HEADS && piece < PIECES;
      float2 sums = first_sums;
      float sink = first_sink;
      if (first > 0) {
        sums = exists ? sums_of(piece, head) : none();
        sink = HAS_SINK && head < TILE_HEADS ? sinks[head] : negative_infinity();
      }
      const float f = factor(sums, sink);
      if (exists) to[piece][head] = f;
    }
  }
  __forceinline__ static float2 none() {
    return make_float2(negative_infinity(), 0.0f);
  }
  template <int TILE_HEADS>
  __forceinline__ static bool merges_first(int thread) {
    return first_head(thread) < TILE_HEADS && thread % LANES < PIECES;
  }
};

// Four dimensions of one head of all pieces, received and added up by LANES neighbouring lanes,
// each taking every LANES-th piece; the order of the sum is fixed.
template <int PIECES, int LANES>
struct Parts {
  static constexpr int COUNT = PIECES / LANES;
  static_assert(PIECES % LANES == 0, "lanes share the pieces evenly");
  uint4 words[COUNT];

  // @param from  this lane's first piece; `stride` floats to the next piece
  __forceinline__ void request(const float* from, i64 stride) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      words[i] = ptx::load_relaxed(from + i * LANES * stride);
  }
  // Asks again for what had not arrived; whether anything had not.
  __forceinline__ bool ask_again(const float* from, i64 stride) {
    bool missing = false;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      if (has_arrived(words[i])) continue;
      words[i] = ptx::load_relaxed(from + i * LANES * stride);
      missing = true;
    }
    return missing;
  }
  // All words have arrived: empties their places and adds them up.
  template <int TILE_HEADS>
  __forceinline__ float4 finish(float* from, i64 stride, const float (*factors)[TILE_HEADS],
                                int lane, int head) {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      ptx::store_relaxed(from + i * LANES * stride, make_uint4(EMPTY, EMPTY, EMPTY, EMPTY));
      const float factor = factors[i * LANES + lane][head];
      sum.x = fmaf(factor, __uint_as_float(words[i].x), sum.x);
      sum.y = fmaf(factor, __uint_as_float(words[i].y), sum.y);
      sum.z = fmaf(factor, __uint_as_float(words[i].z), sum.z);
      sum.w = fmaf(factor, __uint_as_float(words[i].w), sum.w);
    }
#pragma unroll
    for (int lanes = LANES / 2; lanes > 0; lanes /= 2) {
      sum.x += __shfl_xor_sync(0xffffffffu, sum.x, lanes);
      sum.y += __shfl_xor_sync(0xffffffffu, sum.y, lanes);
      sum.z += __shfl_xor_sync(0xffffffffu, sum.z, lanes);
      sum.w += __shfl_xor_sync(0xffffffffu, sum.w, lanes);
    }
    return sum;
  }
};

// Two bf16 of the rope dimensions turned back. The attention output is rounded before, as in the
// reference.
__forceinline__ u32 turn_back(u32 pair, float2 rotation) {
  const float2 turned = rope::rotate(low_to_float(pair), high_to_float(pair),
                                     rope::Rotation{rotation.x, rotation.y}, true);
  return pack_bf16(turned.x, turned.y);
}
// Four finished dimensions of one head to the output.
template <bool TURN_BACK>
__forceinline__ void write_dims(const SparseMlaDecodeArgs& args, int row, int head, int dim,
                                float4 o, const float2* rotations) {
  uint2 words = make_uint2(pack_bf16(o.x, o.y), pack_bf16(o.z, o.w));
  if (TURN_BACK && dim >= MLA_QUANT_DIMS) {
    const int pair = (dim - MLA_QUANT_DIMS) / 2;
    words.x = turn_back(words.x, rotations[pair]);
    words.y = turn_back(words.y, rotations[pair + 1]);
  }
  *reinterpret_cast<uint2*>(args.out + (static_cast<i64>(row) * args.heads + head) * MLA_DIMS +
                            dim) = words;
}

// What a block of a split row does when its own partial results are sent: it receives all pieces of
// SPLIT_DIMS dimensions of its heads, merges and writes them. THREADS threads take part; `sync`
// joins them and makes rotations visible.
template <int PIECES, int NSPLIT, int TILE_HEADS, int THREADS, bool HAS_SINK, bool TURN_BACK>
struct Receiver {
  static constexpr int SPLIT_DIMS = MLA_DIMS / NSPLIT;
  static constexpr int ITEMS = TILE_HEADS * SPLIT_DIMS / 4;  // of four dimensions
  // Lanes that share an item: as many as there are threads for.
  static constexpr int lanes_per_item() {
    int lanes = 1;
    while (ITEMS * lanes * 2 <= THREADS && PIECES % (lanes * 2) == 0 && lanes < 8)
      lanes *= 2;
    return lanes;
  }
  static constexpr int LANES = lanes_per_item();
  static constexpr int ROUNDS = (ITEMS * LANES + THREADS - 1) / THREADS;
  // Rounds requested at once: up to 32 registers of words.
  static constexpr int AHEAD = ROUNDS * (PIECES / LANES) <= 8 ? ROUNDS
                               : PIECES / LANES >= 8          ? 1
                                                              : 8 / (PIECES / LANES);
  static constexpr i64 STRIDE = TILE_HEADS * MLA_DIMS;
  static_assert(ITEMS * LANES % 32 == 0, "whole warps share items");

  float* values;       // [PIECES][TILE_HEADS][512]
  float2* sums;        // [PIECES][TILE_HEADS], those sent to this block
  const float* sinks;  // of the tile's heads
  float first_sink;    // Merge::first_sink of this thread

  template <class Sync>
  __forceinline__ void run(const SparseMlaDecodeArgs& args, float (*factors)[TILE_HEADS], int row,
                           int first_head, int split, int thread, const float2* rotations,
                           Sync&& sync) const {
    using Words = Parts<PIECES, LANES>;
    const int lane = thread % LANES;
    const auto place = [&](int round, int& head, int& dim) {
      const int item = (thread + round * THREADS) / LANES;
      head = item / (SPLIT_DIMS / 4);
      dim = split * SPLIT_DIMS + item % (SPLIT_DIMS / 4) * 4;
      return item < ITEMS;
    };
    const auto address = [&](int head, int dim) {
      return values + lane * STRIDE + head * MLA_DIMS + dim;
    };
    Words words[AHEAD];
    const auto request = [&](int first) {
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        int head, dim;
        if (first + i < ROUNDS && place(first + i, head, dim))
          words[i].request(address(head, dim), STRIDE);
      }
    };
    const auto ask_again = [&](int first) {
      bool missing = false;
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        int head, dim;
        if (first + i < ROUNDS && place(first + i, head, dim))
          missing |= words[i].ask_again(address(head, dim), STRIDE);
      }
      return missing;
    };
    const auto finish = [&](int first) {
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        int head, dim;
        if (first + i >= ROUNDS || !place(first + i, head, dim)) continue;
        const float4 o =
            words[i].template finish<TILE_HEADS>(address(head, dim), STRIDE, factors, lane, head);
        if (lane == 0) write_dims<TURN_BACK>(args, row, first_head + head, dim, o, rotations);
      }
    };
    // Values and sums are asked for together, again and again: one trip to memory after the last
    // of them was sent.
    using Weights = Merge<PIECES>;
    float2* const own_sums =
        sums + thread % Weights::LANES * TILE_HEADS + Weights::first_head(thread);
    uint2 sum_words = make_uint2(EMPTY, EMPTY);
    const bool merges = Weights::template merges_first<TILE_HEADS>(thread);
    request(0);
    bool missing;
    do {
      const bool no_sums = merges && (sum_words.x == EMPTY || sum_words.y == EMPTY);
      if (no_sums) sum_words = ptx::load_relaxed_pair(own_sums);
      missing = ask_again(0) || no_sums;
    } while (missing);
    float2 first_sums = Weights::none();
    if (merges) {
      ptx::store_relaxed(own_sums, make_uint2(EMPTY, EMPTY));
      first_sums = make_float2(__uint_as_float(sum_words.x), __uint_as_float(sum_words.y));
    }
    Weights::template factors<HAS_SINK, TILE_HEADS, THREADS>(
        factors, sinks, first_sink, first_sums, thread,
        [&](int piece, int head) { return receive(sums + piece * TILE_HEADS + head); });
    sync();
    finish(0);
#pragma unroll 1
    for (int first = AHEAD; first < ROUNDS; first += AHEAD) {
      request(first);
      while (ask_again(first)) {
      }
      finish(first);
    }
  }
};

// Lane i computes the rotation of pair i; its inputs are asked for early.
struct RotationInputs {
  int position = 0;
  float frequency = 0.0f;
  __forceinline__ void request(const SparseMlaDecodeArgs& args, int row, int lane) {
    position = ptx::load_int(args.positions + row);
    frequency = ptx::load_float(args.frequencies + lane);
  }
  __forceinline__ void store(float2* rotations, int lane) const {
    const rope::Rotation r = rope::rotation(position, frequency);
    rotations[lane] = make_float2(r.cosine, r.sine);
  }
};

}  // namespace ingot::kernels::sparse_mla
