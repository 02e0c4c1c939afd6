#pragma once
#include "sparse_mla_decode.args.h"

namespace ingot::kernels {

constexpr int sparse_mla_decode_simt_smem_bytes(int warps) {
  return warps * (MLA_DIMS + 2) * 4;
}

}  // namespace ingot::kernels
