#pragma once
// Post and comb of a hyper-connection, from the sums of its mixes. The family's parameters and what
// hc_pre.cuh derives from them are in scope. Source: model specification section 3.5.
#include "common/hc_finish.cuh"

namespace ingot::kernels::hc {

// The extra warp: one value of a token's mixes per lane, then Sinkhorn of up to HC_ROUND tokens,
// four lanes each.
struct Mixer {
  float base = 0.0f, scale = 0.0f;  // of this lane's mix
  float post = 0.0f;                // of the token that was collected last
  int collected = 0, mine = 0;      // tokens; the lane's own

  __forceinline__ void load(const HcPreArgs& args, int lane) {
    if (lane < HC_MIXES) {
      base = args.base[lane];
      scale = args.scale[lane < HC_STREAMS ? 0 : lane < 2 * HC_STREAMS ? 1 : 2];
    }
  }
  __forceinline__ bool full() const { return collected == HC_ROUND; }

  // Takes a token's mixes: what Sinkhorn starts from goes to `matrices`, [HC_ROUND][HC_MIX_STRIDE].
  __forceinline__ void collect(const HcPreArgs& args, const float* gathered, float* matrices,
                               int token, int lane) {
    float sum = 0.0f;
    if (lane < VALUES) {
#pragma unroll
      for (int w = 0; w < GATHERING; ++w)
        sum += gathered[w * VALUES + lane];
    }
    const float inverse =
        inverse_rms(__shfl_sync(0xffffffffu, sum, SQUARES), HC_STREAMS * HIDDEN, args.norm_epsilon);
    const float logit = fmaf(sum * inverse, scale, base);
    post = 2.0f * sigmoid(logit);
    // Rows of the matrix are four neighbouring lanes each.
    float top = fmaxf(logit, __shfl_xor_sync(0xffffffffu, logit, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    const float e = expf(logit - top);
    float row = e + __shfl_xor_sync(0xffffffffu, e, 1);
    row += __shfl_xor_sync(0xffffffffu, row, 2);
    if (lane >= 2 * HC_STREAMS && lane < HC_MIXES)
      matrices[collected * HC_MIX_STRIDE + lane - 2 * HC_STREAMS] =
          fmaf(e, reciprocal_approx(row), args.hc_epsilon);
    if (lane / HC_STREAMS == collected) mine = token;
    ++collected;
    __syncwarp();
  }
  __forceinline__ void store_post(const HcPreArgs& args, int token, int lane) const {
    if (lane >= HC_STREAMS && lane < 2 * HC_STREAMS)
      args.post[static_cast<i64>(token) * HC_STREAMS + lane - HC_STREAMS] = post;
  }
  // Sinkhorn of the tokens that were collected.
  // @param own  column lane % 4 of the lane's token
  __forceinline__ void balance(const HcPreArgs& args, const float* matrices,
                               float (&own)[HC_STREAMS], int lane) const {
    // Lanes without a token do the last one once more.
    const float* const from = matrices + min(lane / HC_STREAMS, collected - 1) * HC_MIX_STRIDE;
    float c[HC_STREAMS][HC_STREAMS];
#pragma unroll
    for (int j = 0; j < HC_STREAMS; ++j) {
      const float4 row = reinterpret_cast<const float4*>(from)[j];
      c[j][0] = row.x, c[j][1] = row.y, c[j][2] = row.z, c[j][3] = row.w;
      own[j] = from[j * HC_STREAMS + lane % HC_STREAMS];
    }
    hc::balance(c, own, args.sinkhorn, args.hc_epsilon, lane);
  }
  __forceinline__ void store_comb(const HcPreArgs& args, const float (&own)[HC_STREAMS], int lane) {
    if (lane / HC_STREAMS < collected) {
#pragma unroll
      for (int j = 0; j < HC_STREAMS; ++j)
        args.comb[static_cast<i64>(mine) * 16 + j * HC_STREAMS + lane % HC_STREAMS] = own[j];
    }
    collected = 0;
    __syncwarp();
  }
};

}  // namespace ingot::kernels::hc
