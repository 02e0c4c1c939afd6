#pragma once
#include "common/types.cuh"

namespace ingot::kernels {

// A job is what one warp multiplies at a time: 32 weight rows x 128 columns of e2m1 and their 128
// ue8m0 scales, in the order of mma fragments (moe_weight_jobs.hpp). Its 128 columns are one scale
// group of the activations.
constexpr int MOE_JOB_ROWS = 32, MOE_JOB_COLS = 128;
constexpr int MOE_JOB_CODE_BYTES = 2048, MOE_JOB_BYTES = MOE_JOB_CODE_BYTES + 128;

struct MoeDecodeArgs {
  const fp8_e4m3* x;     // [tokens, HIDDEN] e4m3, 16-byte aligned
  const float* x_scale;  // [tokens, moe_x_scales(HIDDEN)] powers of two, as act_quant writes them;
                         // NaN where the group holds a NaN
  const int* experts;    // [tokens, TOPK] ids in [0, EXPERTS), distinct within a token
  const float* weights;  // [tokens, TOPK] of the experts in the sum
  const u8*
      gate_up;      // [EXPERTS][INTER / 16][HIDDEN / 128] jobs: rows are 8 of gate, 8 of up, twice
  const u8* down;   // [EXPERTS][HIDDEN / 32][INTER / 128] jobs
  float* sums;      // [2][TOPK * tokens][2][INTER] fp32 workspace: gate, then up; the second
                    // plane for what a strip that two blocks share gets from the other one
  u8* activations;  // [TOPK * tokens][moe_record_bytes(INTER)] workspace of BARRIERS == 2
  float* out;       // [tokens, HIDDEN] fp32: this rank's part of the experts' weighted sum
  u32* counters;    // [MOE_COUNTER_WORDS] zero before the first launch, then left alone
  float limit;      // clamp of gate (above) and up (both sides); infinity for none
  int tokens;       // at most BATCH
};
constexpr int MOE_COUNTER_STRIDE = 32, MOE_COUNTER_WORDS = 2 * MOE_COUNTER_STRIDE;

// ---- pitches and sizes; rows are an odd number of 32 bytes apart, so that 8-byte reads of eight
// rows by four lanes each meet in no bank

constexpr int moe_align(int value, int to) {
  return (value + to - 1) / to * to;
}
// A quantised row of the intermediate: INTER e4m3, then a fp32 scale per 128.
constexpr int moe_record_bytes(int inter) {
  return ((inter + inter / 32 + 31) / 32 | 1) * 32;
}
constexpr int moe_x_pitch(int hidden) {
  return hidden + 32;
}
// Scales of a row, in whole 16-byte words.
constexpr int moe_x_scales(int hidden) {
  return (hidden / 128 + 3) / 4 * 4;
}
constexpr int moe_x_scale_pitch(int hidden) {
  return moe_x_scales(hidden) + 4;
}
constexpr int moe_x_row_bytes(int hidden) {
  return moe_x_pitch(hidden) + 4 * moe_x_scale_pitch(hidden);
}
// Partial sums: 32 rows of a token, padded.
constexpr int MOE_SUM_PITCH = 36;

// Down works in segments: as many stages as hold the jobs of whole token blocks, at least two.
constexpr int moe_segment_stages(int inter, int stage_jobs) {
  return inter / (128 * stage_jobs) > 2 ? inter / (128 * stage_jobs) : 2;
}
constexpr int moe_segment_blocks(int inter, int stage_jobs) {
  return moe_segment_stages(inter, stage_jobs) * stage_jobs * 128 / inter;
}
// Token blocks of at most nmax tokens that any routing can need.
constexpr int moe_most_blocks(int experts, int topk, int batch, int nmax) {
  const int pairs = topk * batch;
  const int spread = (pairs + experts * (nmax - 1)) / nmax;
  return pairs < spread ? pairs : spread;
}
// Few pairs: their inputs stay in shared memory all along, and one warp sorts them in registers.
constexpr bool moe_resident(int topk, int batch, int nmax) {
  return topk * batch <= 32 && nmax >= batch;
}
// Inputs of token blocks during gate/up; afterwards output sums and activations.
constexpr int moe_region_bytes(int hidden, int inter, int topk, int batch, int nmax, int x_buffers,
                               int barriers, int stage_jobs, int warps) {
  const int inputs = x_buffers * nmax * moe_x_row_bytes(hidden);
  const int slots = warps / stage_jobs > 2 ? warps / stage_jobs : 2;
  const int rows =
      barriers == 1 ? topk * batch : slots * moe_segment_blocks(inter, stage_jobs) * nmax;
  const int outputs = batch * MOE_JOB_ROWS * 4 + rows * moe_record_bytes(inter);
  return moe_align(inputs > outputs ? inputs : outputs, 128);
}
constexpr int moe_reduce_groups(int warps, int stage_jobs) {
  return warps / stage_jobs > 2 ? warps / stage_jobs : 2;
}
constexpr int moe_reduce_bytes(int warps, int stage_jobs) {
  return moe_reduce_groups(warps, stage_jobs) * stage_jobs * 8 * MOE_SUM_PITCH * 4;
}
// Scratch of the plan lies over the reduction buffers and the region: token bits per expert, and
// the experts' first pairs and blocks.
constexpr int moe_plan_scratch_bytes(int experts, int batch) {
  return experts * ((batch + 31) / 32 + 1) * 4;
}
// The plan, in front of it the barriers. It keeps the experts' weights where they are few.
constexpr bool moe_keeps_weights(int batch) {
  return batch <= 64;
}
constexpr int MOE_MOST_STAGES = 24, MOE_H_SLOTS = 8;
constexpr int MOE_BARRIERS = 2 * MOE_MOST_STAGES + 4 + 2 * MOE_H_SLOTS + 2 * 4 + 1;
constexpr int moe_plan_bytes(int experts, int topk, int batch, int nmax) {
  const int blocks = moe_most_blocks(experts, topk, batch, nmax), pairs = topk * batch;
  return moe_align(
      MOE_BARRIERS * 8 + 32 * 4 + blocks * 6 + pairs * (moe_keeps_weights(batch) ? 10 : 6), 128);
}
constexpr int moe_decode_smem_bytes(int hidden, int inter, int experts, int topk, int batch,
                                    int warps, int stage_jobs, int stages, int nmax, int x_buffers,
                                    int barriers) {
  const int reduce = moe_reduce_bytes(warps, stage_jobs);
  const int scratch = moe_resident(topk, batch, nmax) ? 0 : moe_plan_scratch_bytes(experts, batch);
  return stages * stage_jobs * MOE_JOB_BYTES +
         moe_region_bytes(hidden, inter, topk, batch, nmax, x_buffers, barriers, stage_jobs,
                          warps) +
         moe_align(reduce > scratch ? reduce : scratch, 128) +
         moe_plan_bytes(experts, topk, batch, nmax);
}

}  // namespace ingot::kernels
