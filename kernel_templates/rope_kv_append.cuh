// The tail of the KV path: (RMSNorm,) rope on the last 64 dimensions, KV quantisation of the other
// 448 in groups of 64, and the packed entry into a paged pool. One warp per token, one pass. With
// LATENT_DIMS as many warps again normalise the query latent, which comes from the same linear.
// Launch contract (host twin: launch_shape in rope_kv_append.space.hpp)
//   grid (ceil(tokens / WARPS), LATENT_DIMS > 0 ? 2 : 1)   block (32 * WARPS)
//   arch sm_80 and later
//   smem none   programmatic dependent launch: yes
//
// Bit-exact with the reference for the same bf16 input of the rope (with NORMALIZE the sum of
// squares has another order, so single bf16 roundings differ). NaN elements are stored as the NaN
// code and do not raise their group's scale; infinity clamps under the largest finite scale.
// Slots of one launch are distinct: two tokens never write the same entry.
#include "common/bf16.cuh"
#include "common/fp8.cuh"
#include "common/launch.cuh"
#include "common/rope.cuh"
#include "rope_kv_append.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "rope_kv_append.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(ENTRY_STRIDE % 8 == 0 && PAGE_BYTES % 8 == 0, "entries are written in 8-byte words");
static_assert(ENTRY_STRIDE >= KV_DATA_BYTES + (SCALES_BESIDE ? KV_SCALE_BYTES : 0),
              "entries do not overlap");
static_assert(PAGE_BYTES >= PAGE_ENTRIES * (ENTRY_STRIDE + (SCALES_BESIDE ? 0 : KV_SCALE_BYTES)),
              "a page holds its entries and their scales");

static_assert(LATENT_DIMS % 8 == 0, "a lane takes whole vectors of the latent");

constexpr int LANE_DIMS = KV_DIMS / 32;                 // 16
constexpr int QUANT_LANES = KV_QUANT_DIMS / LANE_DIMS;  // 28; four lanes make a group
constexpr int LANE_PAIRS = LANE_DIMS / 2;

__forceinline__ void store_16(u8* to, uint4 words) {
  if constexpr (ENTRY_STRIDE % 16 == 0 && PAGE_BYTES % 16 == 0) {
    *reinterpret_cast<uint4*>(to) = words;
  } else {
    reinterpret_cast<uint2*>(to)[0] = make_uint2(words.x, words.y);
    reinterpret_cast<uint2*>(to)[1] = make_uint2(words.z, words.w);
  }
}

// The launch's turn. With LATENT_DIMS the next launch is wq_b, whose blocks take whole
// multiprocessors and would wait on them for this launch, while what runs beside the queries (the
// compressors' linears, which start when the hyper-connection has ended) finds no room and comes
// after wq_b. So wq_b is let onto the card no sooner than here, by when those blocks have theirs.
__forceinline__ void take_turn() {
  if (LATENT_DIMS == 0) release_successor();
  wait_for_predecessor();
  if (LATENT_DIMS > 0) release_successor();
}

// RMSNorm of one token's query latent, by a warp.
__forceinline__ void normalize_latent(const RopeKvAppendArgs& args, int token, int lane) {
  constexpr int VECTORS = LATENT_DIMS / 8, STEPS = VECTORS > 0 ? (VECTORS + 31) / 32 : 1;
  uint4 weight[STEPS], x[STEPS];
  const auto exists = [&](int step) { return step * 32 + lane < VECTORS; };
  const auto load = [&](const bf16* from, int step) {
    return exists(step) ? *reinterpret_cast<const uint4*>(from + (step * 32 + lane) * 8)
                        : make_uint4(0, 0, 0, 0);
  };
#pragma unroll
  for (int i = 0; i < STEPS; ++i)
    weight[i] = load(args.latent_weight, i);
  take_turn();
  if (token >= args.tokens) return;
  const i64 row = static_cast<i64>(token) * LATENT_DIMS;
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < STEPS; ++i)
    x[i] = load(args.latent + row, i);
#pragma unroll
  for (int i = 0; i < STEPS; ++i) {
    const u32 words[4] = {x[i].x, x[i].y, x[i].z, x[i].w};
#pragma unroll
    for (const u32 pair : words) {
      const float low = low_to_float(pair), high = high_to_float(pair);
      squares = fmaf(low, low, fmaf(high, high, squares));
    }
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    squares += __shfl_xor_sync(0xffffffffu, squares, lanes);
  const float inverse = rsqrtf(squares * (1.0f / LATENT_DIMS) + args.epsilon);
  const auto normalized = [&](u32 w, u32 pair) {
    return pack_bf16(low_to_float(w) * (low_to_float(pair) * inverse),
                     high_to_float(w) * (high_to_float(pair) * inverse));
  };
#pragma unroll
  for (int i = 0; i < STEPS; ++i)
    if (exists(i))
      *reinterpret_cast<uint4*>(args.latent_out + row + (i * 32 + lane) * 8) =
          make_uint4(normalized(weight[i].x, x[i].x), normalized(weight[i].y, x[i].y),
                     normalized(weight[i].z, x[i].z), normalized(weight[i].w, x[i].w));
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    rope_kv_append(const __grid_constant__ RopeKvAppendArgs args) {
  const int lane = threadIdx.x % 32, token = blockIdx.x * WARPS + threadIdx.x / 32;
  if constexpr (LATENT_DIMS > 0) {
    if (blockIdx.y == 1) {
      normalize_latent(args, token, lane);
      return;
    }
  }
  uint4 weight[2] = {};
  if (NORMALIZE) {
    const uint4* from = reinterpret_cast<const uint4*>(args.norm_weight + lane * LANE_DIMS);
    weight[0] = from[0];
    weight[1] = from[1];
  }
  const float frequency = args.frequencies[lane];
  take_turn();
  if (token >= args.tokens) return;
  const int slot = args.slots[token];
  if (slot < 0) return;
  const uint4* from = reinterpret_cast<const uint4*>(
      args.kv + static_cast<i64>(token) * args.kv_stride + lane * LANE_DIMS);
  uint4 dims[2] = {from[0], from[1]};
  // Lane i turns pair i's angle into a rotation; the four lanes that hold pairs fetch eight each.
  const rope::Rotation mine = rope::rotation(args.positions[token], frequency);

  if (NORMALIZE) {
    float squares = 0.0f;
    u32(&words)[8] = reinterpret_cast<u32(&)[8]>(dims);
    const u32(&weights)[8] = reinterpret_cast<const u32(&)[8]>(weight);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float low = low_to_float(words[i]), high = high_to_float(words[i]);
      squares = fmaf(low, low, fmaf(high, high, squares));
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
      squares += __shfl_xor_sync(0xffffffffu, squares, lanes);
    const float inverse = __frsqrt_rn(squares * (1.0f / KV_DIMS) + args.epsilon);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      words[i] = pack_bf16(low_to_float(weights[i]) * (low_to_float(words[i]) * inverse),
                           high_to_float(weights[i]) * (high_to_float(words[i]) * inverse));
  }

  // A group's scale; lanes of the rope dimensions take part in the shuffles and ignore the result.
  float largest = fmaxf(fp8::largest_magnitude(dims[0]), fp8::largest_magnitude(dims[1]));
  largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
  largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
  const int exponent = fp8::scale_exponent(largest);

  u8* const page = args.pool + static_cast<i64>(slot / PAGE_ENTRIES) * PAGE_BYTES;
  const int place = slot % PAGE_ENTRIES;
  u8* const entry = page + place * ENTRY_STRIDE;
  u8* const scales = SCALES_BESIDE ? entry + KV_DATA_BYTES
                                   : page + PAGE_ENTRIES * ENTRY_STRIDE + place * KV_SCALE_BYTES;
  rope::Rotation turns[LANE_PAIRS];
#pragma unroll
  for (int i = 0; i < LANE_PAIRS; ++i) {
    const int pair = (lane % 4) * LANE_PAIRS + i;
    turns[i] = {__shfl_sync(0xffffffffu, mine.cosine, pair),
                __shfl_sync(0xffffffffu, mine.sine, pair)};
  }
  if (lane < QUANT_LANES) {
    const float inverse = fp8::inverse_power_of_two(exponent);
    const uint2 low = fp8::quantize(dims[0], inverse), high = fp8::quantize(dims[1], inverse);
    store_16(entry + lane * LANE_DIMS, make_uint4(low.x, low.y, high.x, high.y));
  } else {
    u32(&words)[8] = reinterpret_cast<u32(&)[8]>(dims);
#pragma unroll
    for (int i = 0; i < LANE_PAIRS; ++i) {
      const float2 turned =
          rope::rotate(low_to_float(words[i]), high_to_float(words[i]), turns[i], false);
      words[i] = pack_bf16(turned.x, turned.y);
    }
    u8* to = entry + KV_QUANT_DIMS + (lane - QUANT_LANES) * (2 * LANE_DIMS);
    store_16(to, dims[0]);
    store_16(to + 16, dims[1]);
  }
  if (lane % 4 == 0) scales[lane / 4] = static_cast<u8>(lane < QUANT_LANES ? exponent + 127 : 0);
}

}  // namespace ingot::kernels
