#pragma once
// The end of a hyper-connection, eight neighbouring channels to a thread: streams behind a
// sublayer, their weighted sum, its norm, the quantised input, and the mix for the next sublayer.
// Source: model specification section 3.5.
#include "common/bf16.cuh"
#include "common/fp8.cuh"
#include "common/hyper_connection.cuh"
#include "fp8_linear.args.h"

namespace ingot::kernels::hc {

__forceinline__ float inverse_rms(float squares, float count, float epsilon) {
  return rsqrtf(squares / count + epsilon);
}

// The streams behind the sublayer whose output is f, in place.
__forceinline__ void make_streams(uint4 (&x)[HC_STREAMS], uint4 f, const Expand& expand) {
  const u32 factors[4] = {f.x, f.y, f.z, f.w};
  u32 pairs[4][HC_STREAMS];
#pragma unroll
  for (int s = 0; s < HC_STREAMS; ++s) {
    pairs[0][s] = x[s].x, pairs[1][s] = x[s].y;
    pairs[2][s] = x[s].z, pairs[3][s] = x[s].w;
  }
#pragma unroll
  for (int p = 0; p < 4; ++p)
    expand.apply(pairs[p], factors[p]);
#pragma unroll
  for (int s = 0; s < HC_STREAMS; ++s)
    x[s] = make_uint4(pairs[0][s], pairs[1][s], pairs[2][s], pairs[3][s]);
}

// A token's weights of its streams, from the sums of its first four mixes in place.
__forceinline__ void stream_weights(float (&pre)[HC_STREAMS], float inverse_rms, const float* base,
                                    float scale, float epsilon) {
#pragma unroll
  for (int i = 0; i < HC_STREAMS; ++i)
    pre[i] = sigmoid(fmaf(pre[i] * inverse_rms, scale, base[i])) + epsilon;
}
__forceinline__ void stream_weights(float (&pre)[HC_STREAMS], float inverse_rms,
                                    const HcPreArgs& args) {
  stream_weights(pre, inverse_rms, args.base, args.scale[0], args.hc_epsilon);
}

// The weighted sum of two neighbouring channels of the streams, whose squares are added to
// `squares` after it is rounded.
__forceinline__ u32 collapse_pair(const u32 (&x)[HC_STREAMS], const float (&pre)[HC_STREAMS],
                                  float& squares) {
  float low = 0.0f, high = 0.0f;
#pragma unroll
  for (int s = 0; s < HC_STREAMS; ++s) {
    low = fmaf(pre[s], low_to_float(x[s]), low);
    high = fmaf(pre[s], high_to_float(x[s]), high);
  }
  const u32 pair = pack_bf16(low, high);
  low = low_to_float(pair);
  high = high_to_float(pair);
  squares = fmaf(low, low, fmaf(high, high, squares));
  return pair;
}
// The same of eight channels.
__forceinline__ uint4 collapse(const uint4 (&x)[HC_STREAMS], const float (&pre)[HC_STREAMS],
                               float& squares) {
  u32 words[4];
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    u32 pairs[HC_STREAMS];
#pragma unroll
    for (int s = 0; s < HC_STREAMS; ++s)
      pairs[s] = p == 0 ? x[s].x : p == 1 ? x[s].y : p == 2 ? x[s].z : x[s].w;
    words[p] = collapse_pair(pairs, pre, squares);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// @param scale  of the token
__forceinline__ u32 normalize_pair(u32 weights, u32 u, float scale) {
  return pack_bf16(low_to_float(weights) * (low_to_float(u) * scale),
                   high_to_float(weights) * (high_to_float(u) * scale));
}
__forceinline__ uint2 normalize(uint2 weights, uint2 u, float scale) {
  return make_uint2(normalize_pair(weights.x, u.x, scale), normalize_pair(weights.y, u.y, scale));
}
__forceinline__ uint4 normalize(uint4 weights, uint4 u, float scale) {
  return make_uint4(normalize_pair(weights.x, u.x, scale), normalize_pair(weights.y, u.y, scale),
                    normalize_pair(weights.z, u.z, scale), normalize_pair(weights.w, u.w, scale));
}

// Quantises channels 8 * vector and on of a token, by whole warps of neighbouring vectors; stores
// where `exists`.
template <int HIDDEN>
__forceinline__ void store_quantized(const HcPreArgs& args, int token, int vector, bool exists,
                                     uint4 y) {
  const fp8::Quantized group = fp8::quantize_group(y);
  if (!exists) return;
  const int k = vector / 16, part = vector % 16;
  const i64 line = static_cast<i64>(k) * args.code_rows + token;
  *reinterpret_cast<uint2*>(args.codes + (line - token % 8) * 128 +
                            fp8_tile_offset(token % 8, part * 8)) = group.codes;
  if (part == 0) args.code_scale[line] = group.scale;
  if (args.row_codes != nullptr) {
    *reinterpret_cast<uint2*>(args.row_codes + static_cast<i64>(token) * HIDDEN + vector * 8) =
        group.codes;
    if (part == 0)
      args.row_scale[static_cast<u32>(token) * act_quant_scale_stride(HIDDEN) + k] = group.scale;
  }
}

// The same, of group k by a whole warp, four neighbouring channels to a lane.
template <int HIDDEN>
__forceinline__ void store_quantized_group(const HcPreArgs& args, int token, int k, int lane,
                                           uint2 y) {
  const uint4 padded = make_uint4(y.x, y.y, 0, 0);
  const u32 bits = __reduce_max_sync(0xffffffffu, fp8::largest_magnitude_bits(padded));
  const int exponent = fp8::scale_exponent(__uint_as_float(bits));
  const u32 codes = fp8::quantize(padded, fp8::inverse_power_of_two(exponent)).x;
  const float scale =
      bits > fp8::kInfinityBits ? __uint_as_float(0x7fffffffu) : fp8::power_of_two(exponent);
  const i64 line = static_cast<i64>(k) * args.code_rows + token;
  *reinterpret_cast<u32*>(args.codes + (line - token % 8) * 128 +
                          fp8_tile_offset(token % 8, lane * 4)) = codes;
  if (lane == 0) args.code_scale[line] = scale;
  if (args.row_codes != nullptr) {
    *reinterpret_cast<u32*>(args.row_codes + static_cast<i64>(token) * HIDDEN + k * 128 +
                            lane * 4) = codes;
    if (lane == 0)
      args.row_scale[static_cast<u32>(token) * act_quant_scale_stride(HIDDEN) + k] = scale;
  }
}

// Post and comb of one token, from the sums of all its mixes; Sinkhorn in this one lane.
__forceinline__ void store_mix(const HcPreArgs& args, const float* sums, float inverse_rms,
                               int token) {
  float post[HC_STREAMS], comb[HC_STREAMS][HC_STREAMS];
#pragma unroll
  for (int j = 0; j < HC_STREAMS; ++j) {
    post[j] = 2.0f * sigmoid(fmaf(sums[HC_STREAMS + j] * inverse_rms, args.scale[1],
                                  args.base[HC_STREAMS + j]));
#pragma unroll
    for (int k = 0; k < HC_STREAMS; ++k) {
      const int at = 2 * HC_STREAMS + j * HC_STREAMS + k;
      comb[j][k] = fmaf(sums[at] * inverse_rms, args.scale[2], args.base[at]);
    }
  }
  sinkhorn(comb, args.sinkhorn, args.hc_epsilon);
  *reinterpret_cast<float4*>(args.post + static_cast<i64>(token) * HC_STREAMS) =
      make_float4(post[0], post[1], post[2], post[3]);
#pragma unroll
  for (int j = 0; j < HC_STREAMS; ++j)
    reinterpret_cast<float4*>(args.comb + static_cast<i64>(token) * 16)[j] =
        make_float4(comb[j][0], comb[j][1], comb[j][2], comb[j][3]);
}

}  // namespace ingot::kernels::hc
