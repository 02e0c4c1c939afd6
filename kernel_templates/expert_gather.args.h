#pragma once
#include "common/expert_rows.args.h"

namespace ingot::kernels {

struct ExpertGatherArgs {
  const fp8_e4m3* x;     // [tokens, HIDDEN] e4m3, 16-byte aligned
  const float* x_scale;  // [tokens, scale_stride] powers of two, as act_quant writes them; NaN
                         // where the group holds a NaN
  const int* row_of;     // [tokens, TOPK] of expert_order
  u8* rows;          // [HIDDEN / 128][row_pitch][128] tiles of common/expert_rows.args.h, 16-byte
                     // aligned; rows without a pair are left alone
  float* row_scale;  // ROW_SCALES: [row_pitch], else [HIDDEN / 128][row_pitch]
  int scale_stride;  // moe_x_scales(HIDDEN)
  int row_pitch;     // expert_rows(tokens of the workspace)
  int tokens;        // blocks of the grid
};

}  // namespace ingot::kernels
