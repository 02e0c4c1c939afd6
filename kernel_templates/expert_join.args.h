#pragma once
#include "common/expert_rows.args.h"

namespace ingot::kernels {

struct ExpertJoinArgs {
  const void* y;      // [row_pitch, HIDDEN] bf16 (ROUND_EXPERTS) or fp32, 16-byte aligned: experts'
                      // outputs, weighted
  const int* row_of;  // [tokens, TOPK] of expert_order
  float* out;  // [tokens, HIDDEN] fp32, 16-byte aligned: this rank's part of the experts' sum
  int tokens;  // blocks of the grid
};

// Eight channels of a thread, whole warps, at most 512 threads.
constexpr int expert_join_threads(int hidden) {
  const int threads = (hidden / 8 + 31) / 32 * 32;
  return threads < 512 ? threads : 512;
}

}  // namespace ingot::kernels
