#pragma once
#include "common/expert_rows.args.h"

namespace ingot::kernels {

struct ExpertOrderArgs {
  const int* experts;    // [tokens, TOPK] ids in [0, EXPERTS), distinct within a token
  const float* weights;  // [tokens, TOPK] of the experts in the sum
  int* first;            // [EXPERTS] an expert's first row, a multiple of 8
  int* count;            // [EXPERTS] its rows; 0 is allowed
  int* row_of;           // [tokens, TOPK] row of the pair, in the order of the ids
  float* row_weight;     // [expert_rows(tokens)] weight of the pair; unused rows are left alone
  int tokens;            // 0 is allowed
};

}  // namespace ingot::kernels
