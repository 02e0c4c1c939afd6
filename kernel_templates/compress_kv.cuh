// The compressor: keeps the running state of each sequence, pools a block's tokens when the last of
// them is there (per-channel softmax of S, sum of weighted K), and appends the entry: RMS norm,
// rope at the block's first position, then FP8 in groups of 64 with the rope dimensions in bf16, or
// the Hadamard transform and FP4 in groups of 32. Source: model specification sections 3.9 and 4.
// Launch contract (host twin: launch_shape in compress_kv.space.hpp)
//   grid (shares, sequences)   block (THREADS)   cluster none   arch sm_80 and later
//   smem COMPRESS_SMEM_BYTES, dynamic      programmatic dependent launch: yes
//
// A sequence may bring any number of tokens: one, drafts, a chunk of its prompt. Blocks of tokens
// are dealt to thread blocks; the first takes those that need the state and writes it, so no other
// can meet a row that is being replaced. What an entry is made of, and in which order, does not
// depend on how its tokens came: results are equal to the bit for every chunking. Rollback needs
// nothing done: rows of dropped tokens are written again. A sequence may go back to any length of
// which the tokens that its next entry needs (CSA: 7 at most; HCA: the last one) are among the
// newest STATE_ROWS. A sequence begins at position 0 and finds no state there.
//
// NaN in K or S makes the entry NaN: its FP8 codes, or its FP4 scales (255).
#include "common/bf16.cuh"
#include "common/fp4.cuh"
#include "common/fp8.cuh"
#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "common/rope.cuh"
#include "compress_kv.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "compress_kv.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

constexpr bool OVERLAP = RATIO == 4;
constexpr int DIMS = compress_kv_dims(INDEX_KEYS), WIDTH = compress_kv_width(RATIO, INDEX_KEYS);
constexpr int THREADS = DIMS / CHANNELS, WARPS = THREADS / 32;
constexpr int STATE_FLOATS = compress_kv_state_floats(RATIO, INDEX_KEYS);
constexpr int POOLED = OVERLAP ? 8 : RATIO;  // tokens of an entry
constexpr int QUANT_DIMS = INDEX_KEYS ? DIMS : DIMS - COMPRESS_ROPE_DIMS;
constexpr int GROUP = INDEX_KEYS ? 32 : 64, GROUP_LANES = GROUP / CHANNELS;
constexpr int DATA_BYTES = INDEX_KEYS ? DIMS / 2 : QUANT_DIMS + 2 * COMPRESS_ROPE_DIMS;
constexpr int SCALE_BYTES = INDEX_KEYS ? 4 : 8;
static_assert(RATIO == 4 || (RATIO == 128 && !INDEX_KEYS), "CSA, HCA, or the indexer of CSA");
static_assert(CHANNELS == 4 || (CHANNELS == 2 && !INDEX_KEYS),
              "a warp holds whole groups, and all of an index key");
static_assert(STATE_ROWS >= (OVERLAP ? 8 : 1), "the tokens that an entry needs are kept");
static_assert(ENTRY_STRIDE >= DATA_BYTES + (SCALES_BESIDE ? SCALE_BYTES : 0) &&
                  ENTRY_STRIDE % 8 == 0 && PAGE_BYTES % 8 == 0,
              "entries do not overlap, and are written in words");
static_assert(PAGE_BYTES >= PAGE_ENTRIES * (ENTRY_STRIDE + (SCALES_BESIDE ? 0 : SCALE_BYTES)),
              "a page holds its entries and their scales");
static_assert(!INDEX_KEYS || (ENTRY_STRIDE == DATA_BYTES && !SCALES_BESIDE),
              "index keys lie as indexer_scores reads them");

struct SharedStorage {
  float warp_sums[8];
};
static_assert(sizeof(SharedStorage) == COMPRESS_SMEM_BYTES && WARPS <= 8);

struct Channels {
  float v[CHANNELS];

  static __forceinline__ Channels load(const float* from) {
    Channels c;
    if constexpr (CHANNELS == 4) {
      const float4 four = *reinterpret_cast<const float4*>(from);
      c.v[0] = four.x, c.v[1] = four.y, c.v[2] = four.z, c.v[3] = four.w;
    } else {
      const float2 two = *reinterpret_cast<const float2*>(from);
      c.v[0] = two.x, c.v[1] = two.y;
    }
    return c;
  }
  __forceinline__ void store(float* to) const {
    if constexpr (CHANNELS == 4)
      *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
    else
      *reinterpret_cast<float2*>(to) = make_float2(v[0], v[1]);
  }
};

// The tokens of one sequence in this launch, as one thread sees them.
struct Sequence {
  const CompressKvArgs& args;
  SharedStorage& shared;
  int row, start, end;  // first row; positions
  i64 slot;
  int channel;  // the thread's first

  __forceinline__ float* state(int position) const {
    return args.state + (slot * STATE_ROWS + position % STATE_ROWS) * STATE_FLOATS;
  }
  __forceinline__ i64 input(int position) const {
    return static_cast<i64>(row + position - start) * args.row_stride;
  }
  // K and S of a token of this launch; `half` 1: half B.
  __forceinline__ Channels new_k(int position, int half) const {
    return Channels::load(args.k + input(position) + half * DIMS + channel);
  }
  __forceinline__ Channels new_s(int position, int half) const {
    Channels s = Channels::load(args.s + input(position) + half * DIMS + channel);
    const Channels ape =
        Channels::load(args.ape + position % RATIO * WIDTH + half * DIMS + channel);
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c)
      s.v[c] += ape.v[c];
    return s;
  }

  // ---- CSA: rows of tokens

  __forceinline__ void pool_overlapping(int block, Channels& pooled) const {
    Channels k[POOLED], s[POOLED];
    const int first = block == 0 ? 4 : 0;  // block 0 has none before it
#pragma unroll
    for (int i = 0; i < POOLED; ++i) {
      const int position = 4 * block - 4 + i, half = i / 4;
      if (i < first) {
#pragma unroll
        for (int c = 0; c < CHANNELS; ++c) {
          k[i].v[c] = 0.0f;
          s[i].v[c] = __uint_as_float(0xff800000u);
        }
      } else if (position >= start) {
        k[i] = new_k(position, half);
        s[i] = new_s(position, half);
      } else {
        const float* const from = state(position) + half * DIMS + channel;
        k[i] = Channels::load(from);
        s[i] = Channels::load(from + WIDTH);
      }
    }
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) {
      float top = s[0].v[c], sum = 0.0f, value = 0.0f;
#pragma unroll
      for (int i = 1; i < POOLED; ++i)
        top = fmaxf(top, s[i].v[c]);
#pragma unroll
      for (int i = 0; i < POOLED; ++i) {
        s[i].v[c] = expf(s[i].v[c] - top);
        sum += s[i].v[c];
      }
#pragma unroll
      for (int i = 0; i < POOLED; ++i)
        value = __fadd_rn(value, __fmul_rn(k[i].v[c], s[i].v[c] / sum));
      pooled.v[c] = value;
    }
  }
  __forceinline__ void keep_rows() const {
#pragma unroll 1
    for (int position = max(start, end - STATE_ROWS); position < end; ++position) {
      float* const to = state(position) + channel;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        new_k(position, half).store(to + half * DIMS);
        new_s(position, half).store(to + WIDTH + half * DIMS);
      }
    }
  }

  // ---- HCA: running softmax

  // Takes the tokens of a block that are there; keeps the states of the newest ones with `keep`.
  // Returns whether the block is complete.
  __forceinline__ bool pool_running(int block, bool keep, Channels& pooled) const {
    Channels top, sum, value;
    int position = max(block * RATIO, start);
    const int last = min((block + 1) * RATIO, end);
    if (position > block * RATIO) {
      const float* const from = state(position - 1) + channel;
      top = Channels::load(from);
      sum = Channels::load(from + DIMS);
      value = Channels::load(from + 2 * DIMS);
    } else {
#pragma unroll
      for (int c = 0; c < CHANNELS; ++c) {
        top.v[c] = __uint_as_float(0xff800000u);
        sum.v[c] = value.v[c] = 0.0f;
      }
    }
#pragma unroll 1
    for (; position < last; position += TOKENS_AHEAD) {
      Channels k[TOKENS_AHEAD], s[TOKENS_AHEAD];
#pragma unroll
      for (int i = 0; i < TOKENS_AHEAD; ++i) {
        if (position + i >= last) continue;
        k[i] = new_k(position + i, 0);
        s[i] = new_s(position + i, 0);
      }
#pragma unroll
      for (int i = 0; i < TOKENS_AHEAD; ++i) {
        if (position + i >= last) continue;
#pragma unroll
        for (int c = 0; c < CHANNELS; ++c) {
          const float highest = fmaxf(top.v[c], s[i].v[c]);
          const float fade = expf(top.v[c] - highest), weight = expf(s[i].v[c] - highest);
          sum.v[c] = fmaf(sum.v[c], fade, weight);
          value.v[c] = fmaf(value.v[c], fade, weight * k[i].v[c]);
          top.v[c] = highest;
        }
        if (keep && position + i >= end - STATE_ROWS) {
          float* const to = state(position + i) + channel;
          top.store(to);
          sum.store(to + DIMS);
          value.store(to + 2 * DIMS);
        }
      }
    }
    if (last < (block + 1) * RATIO) return false;
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c)
      pooled.v[c] = value.v[c] / sum.v[c];
    return true;
  }

  // ---- the entry

  __forceinline__ float sum_of_all(float value) const {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
      value += __shfl_xor_sync(0xffffffffu, value, lanes);
    if constexpr (WARPS > 1) {
      __syncthreads();  // the entry before has read its sums
      if (threadIdx.x % 32 == 0) shared.warp_sums[threadIdx.x / 32] = value;
      __syncthreads();
      value = 0.0f;
#pragma unroll
      for (int w = 0; w < WARPS; ++w)
        value += shared.warp_sums[w];
    }
    return value;
  }

  // y = H * x / sqrt(128), in the reference's order: neighbours first.
  __forceinline__ void transform(Channels& x) const {
#pragma unroll
    for (int half = 1; half < CHANNELS; half *= 2)
#pragma unroll
      for (int c = 0; c < CHANNELS; ++c)
        if ((c & half) == 0) {
          const float a = x.v[c], b = x.v[c + half];
          x.v[c] = a + b;
          x.v[c + half] = a - b;
        }
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2)
#pragma unroll
      for (int c = 0; c < CHANNELS; ++c) {
        const float other = __shfl_xor_sync(0xffffffffu, x.v[c], lanes);
        x.v[c] = (threadIdx.x & lanes) == 0 ? x.v[c] + other : other - x.v[c];
      }
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c)
      x.v[c] = to_float(to_bf16(x.v[c] * 0.088388347648318447f));
  }

  __forceinline__ void append(int block, Channels x) const {
    float squares = 0.0f;
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) {
      x.v[c] = to_float(to_bf16(x.v[c]));
      squares = fmaf(x.v[c], x.v[c], squares);
    }
    const float inverse = 1.0f / sqrtf(sum_of_all(squares) * (1.0f / DIMS) + args.epsilon);
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c)
      x.v[c] = to_float(to_bf16(to_float(args.norm_weight[channel + c]) * (x.v[c] * inverse)));
    const bool turns = channel >= DIMS - COMPRESS_ROPE_DIMS;
    if (turns) {
#pragma unroll
      for (int c = 0; c < CHANNELS; c += 2) {
        const int pair = (channel + c - (DIMS - COMPRESS_ROPE_DIMS)) / 2;
        const float2 turned = rope::rotate(
            x.v[c], x.v[c + 1], rope::rotation(block * RATIO, args.frequencies[pair]), false);
        x.v[c] = to_float(to_bf16(turned.x));
        x.v[c + 1] = to_float(to_bf16(turned.y));
      }
    }
    if constexpr (INDEX_KEYS) transform(x);

    float largest = 0.0f;
    bool has_nan = false;
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) {
      largest = fmaxf(largest, fabsf(x.v[c]));
      has_nan |= x.v[c] != x.v[c];
    }
#pragma unroll
    for (int lanes = 1; lanes < GROUP_LANES; lanes *= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, lanes));

    const int page = args.page_table[slot * args.page_stride + block / PAGE_ENTRIES];
    u8* const in_page = args.pool + static_cast<i64>(page) * PAGE_BYTES;
    const int place = block % PAGE_ENTRIES, thread = threadIdx.x;
    u8* const entry = in_page + place * ENTRY_STRIDE;
    u8* const scales = SCALES_BESIDE ? entry + DATA_BYTES
                                     : in_page + PAGE_ENTRIES * ENTRY_STRIDE + place * SCALE_BYTES;
    if constexpr (INDEX_KEYS) {
      const u32 nan_lanes = __ballot_sync(0xffffffffu, has_nan);
      const int exponent = fp4::scale_exponent(largest);
      const float factor = fp8::inverse_power_of_two(exponent);
      u32 codes = 0;
#pragma unroll
      for (int c = 0; c < CHANNELS; ++c)
        codes |= fp4::code_of(x.v[c] * factor) << (4 * c);
      *reinterpret_cast<u16*>(entry + channel / 2) = static_cast<u16>(codes);
      if (thread % GROUP_LANES == 0) {
        const bool nan = (nan_lanes >> thread & 0xffffffffu >> (32 - GROUP_LANES)) != 0;
        scales[thread / GROUP_LANES] = static_cast<u8>(nan ? 255 : exponent + 127);
      }
    } else {
      const int exponent = fp8::scale_exponent(largest);
      const float factor = fp8::inverse_power_of_two(exponent);
      if (!turns) {
#pragma unroll
        for (int c = 0; c < CHANNELS; c += 2)
          *reinterpret_cast<u16*>(entry + channel + c) =
              static_cast<u16>(fp8::from_floats(x.v[c] * factor, x.v[c + 1] * factor));
      } else {
#pragma unroll
        for (int c = 0; c < CHANNELS; c += 2)
          *reinterpret_cast<u32*>(entry + QUANT_DIMS + 2 * (channel + c - QUANT_DIMS)) =
              pack_bf16(x.v[c], x.v[c + 1]);
      }
      if (thread % GROUP_LANES == 0)
        scales[thread / GROUP_LANES] = static_cast<u8>(turns ? 0 : exponent + 127);
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    compress_kv(const __grid_constant__ CompressKvArgs args) {
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(ptx::dynamic_shared_memory());
  release_successor();
  wait_for_predecessor();
  const int share = blockIdx.x, sequence = blockIdx.y;
  const int row = args.row_starts[sequence], tokens = args.row_starts[sequence + 1] - row;
  if (tokens <= 0) return;
  const int start = args.positions[row], end = start + tokens;
  const Sequence of{args,
                    shared,
                    row,
                    start,
                    end,
                    args.slots[sequence],
                    static_cast<int>(threadIdx.x) * CHANNELS};
  const int first = start / RATIO;
  Channels pooled;
  if constexpr (OVERLAP) {
    // The first share: the first two blocks, which may need rows of before, then the state.
    const int complete = end / RATIO;
    if (share > 0) {
      const int block = first + 1 + share;
      if (block >= complete) return;
      of.pool_overlapping(block, pooled);
      of.append(block, pooled);
      return;
    }
#pragma unroll 1
    for (int block = first; block < min(first + 2, complete); ++block) {
      of.pool_overlapping(block, pooled);
      of.append(block, pooled);
    }
    of.keep_rows();
  } else {
    // The first share: the first block, and those of the newest STATE_ROWS tokens.
    const int last = (end - 1) / RATIO;
    const int newest = max(first + 1, max(end - STATE_ROWS, 0) / RATIO);
    if (share > 0) {
      if (first + share >= newest) return;
      of.pool_running(first + share, false, pooled);
      of.append(first + share, pooled);
      return;
    }
#pragma unroll 1
    for (int block = first; block <= last; block = block == first ? newest : block + 1)
      if (of.pool_running(block, true, pooled)) of.append(block, pooled);
  }
}

}  // namespace ingot::kernels
