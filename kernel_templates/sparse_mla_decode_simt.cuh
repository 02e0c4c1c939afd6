// Sparse MLA decode one head at a time in fp32, without tensor cores: the independent check of the
// other families and the "before" of their speed. What it computes and its arguments are those of
// sparse_mla_decode.cuh; the exchange buffers are not used.
// Launch contract (host twin: launch_shape in sparse_mla_decode_simt.space.hpp)
//   grid (heads, rows)   block (32 * WARPS)   arch sm_80 and later
//   smem sparse_mla_decode_simt_smem_bytes(WARPS), dynamic   programmatic dependent launch: yes
//
// It shares no arithmetic with the others: codes are decoded by integer shifts, the softmax moves
// its maximum at every key, and the rotation uses the accurate library functions. A lane owns 16
// dimensions of every key: codes in the first 28 lanes, bf16 in the last 4. Warps take keys in turn
// and are merged in ascending order at the end.
#include "common/bf16.cuh"
#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "sparse_mla_decode_simt.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "sparse_mla_decode_simt.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

constexpr int THREADS = 32 * WARPS, LANE_DIMS = MLA_DIMS / 32,
              QUANT_LANES = MLA_QUANT_DIMS / LANE_DIMS;
static_assert(WARPS >= 1 && WARPS <= 32, "a block");

struct SharedStorage {
  float values[WARPS][MLA_DIMS];
  float maximum[WARPS], sum[WARPS];
};
static_assert(sizeof(SharedStorage) == sparse_mla_decode_simt_smem_bytes(WARPS), "host's formula");

// e4m3 to fp32: the code's exponent and mantissa in place, times 2^120; NaN codes stay NaN.
__forceinline__ float decode_e4m3(u32 code) {
  const u32 magnitude = code & 0x7fu, sign = (code & 0x80u) << 24;
  if (magnitude == 0x7fu) return __uint_as_float(0x7fffffffu);
  return __uint_as_float(sign | (magnitude << 20)) * __uint_as_float(247u << 23);
}

// This lane's 16 dimensions of one entry.
__forceinline__ void load_key(float (&key)[LANE_DIMS], const SparseMlaDecodeArgs& args,
                              bool in_window, int index, int lane) {
  const int entries = in_window ? WINDOW_PAGE_ENTRIES : SELECTED_PAGE_ENTRIES;
  const i64 page_bytes = in_window ? WINDOW_PAGE_BYTES : SELECTED_PAGE_BYTES;
  const u8* page =
      (in_window ? args.window_pool : args.selected_pool) + index / entries * page_bytes;
  const int place = index % entries;
  const u8* entry = page + place * ENTRY_STRIDE;
  if (lane < QUANT_LANES) {
    const u8* scales = SCALES_BESIDE ? entry + MLA_ENTRY_BYTES
                                     : page + entries * ENTRY_STRIDE + place * MLA_SCALE_BYTES;
    const float scale = __uint_as_float(static_cast<u32>(scales[lane / 4]) << 23);
    for (int i = 0; i < LANE_DIMS; ++i)
      key[i] = decode_e4m3(entry[lane * LANE_DIMS + i]) * scale;
  } else {
    const bf16* rope = reinterpret_cast<const bf16*>(entry + MLA_QUANT_DIMS);
    for (int i = 0; i < LANE_DIMS; ++i)
      key[i] = to_float(rope[(lane - QUANT_LANES) * LANE_DIMS + i]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    sparse_mla_decode_simt(const __grid_constant__ SparseMlaDecodeArgs args) {
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(ptx::dynamic_shared_memory());
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int head = blockIdx.x, row = blockIdx.y;
  const float negative_infinity = __uint_as_float(0xff800000u);
  release_successor();
  wait_for_predecessor();

  const i64 first = (static_cast<i64>(row) * args.heads + head) * MLA_DIMS;
  float q[LANE_DIMS], o[LANE_DIMS] = {};
  for (int i = 0; i < LANE_DIMS; ++i)
    q[i] = to_float(args.q[first + lane * LANE_DIMS + i]);
  float maximum = negative_infinity, sum = 0.0f;
  const int window_count = args.window_counts[row];
  const int count = window_count + (args.selected_slots > 0 ? args.selected_counts[row] : 0);
  for (int k = warp; k < count; k += WARPS) {
    const bool in_window = k < window_count;
    const int index =
        in_window
            ? args.window_indices[static_cast<i64>(row) * args.window_slots + k]
            : args.selected_indices[static_cast<i64>(row) * args.selected_slots + k - window_count];
    if (index < 0) continue;
    float key[LANE_DIMS];
    load_key(key, args, in_window, index, lane);
    float score = 0.0f;
    for (int i = 0; i < LANE_DIMS; ++i)
      score = fmaf(q[i], key[i], score);
    for (int lanes = 16; lanes > 0; lanes /= 2)
      score += __shfl_xor_sync(0xffffffffu, score, lanes);
    score *= 0.04419417382415922f;
    const float now = fmaxf(maximum, score);
    const float keep = expf(maximum - now), weight = expf(score - now);
    sum = fmaf(sum, keep, weight);
    for (int i = 0; i < LANE_DIMS; ++i)
      o[i] = fmaf(o[i], keep, weight * key[i]);
    maximum = now;
  }
  for (int i = 0; i < LANE_DIMS; ++i)
    shared.values[warp][lane * LANE_DIMS + i] = o[i];
  if (lane == 0) {
    shared.maximum[warp] = maximum;
    shared.sum[warp] = sum;
  }
  __syncthreads();

  const float sink = HAS_SINK ? args.sink[head] : negative_infinity;
  float largest = sink;
  for (int w = 0; w < WARPS; ++w)
    largest = fmaxf(largest, shared.maximum[w]);
  if (largest == negative_infinity) largest = 0.0f;  // nothing, or NaN alone
  for (int pair = threadIdx.x; pair < MLA_DIMS / 2; pair += THREADS) {
    float low = 0.0f, high = 0.0f, total;
    total = expf(sink - largest);
    for (int w = 0; w < WARPS; ++w) {
      const float weight = expf(shared.maximum[w] - largest);
      total = fmaf(weight, shared.sum[w], total);
      low = fmaf(weight, shared.values[w][2 * pair], low);
      high = fmaf(weight, shared.values[w][2 * pair + 1], high);
    }
    if (total != 0.0f) {
      low /= total;
      high /= total;
    }
    if (INVERSE_ROPE && pair >= MLA_QUANT_DIMS / 2) {
      const float angle =
          static_cast<float>(args.positions[row]) * args.frequencies[pair - MLA_QUANT_DIMS / 2];
      const float cosine = cosf(angle), sine = sinf(angle);
      const float a = to_float(to_bf16(low)), b = to_float(to_bf16(high));
      low = a * cosine + b * sine;
      high = b * cosine - a * sine;
    }
    args.out[first + 2 * pair] = to_bf16(low);
    args.out[first + 2 * pair + 1] = to_bf16(high);
  }
}

}  // namespace ingot::kernels
