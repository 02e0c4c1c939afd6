// Sparse MLA prefill on mma.sync, every card: many query rows, each over its own window and its own
// selected keys. A block is an unsplit block of sparse_mla_decode (which says how it works, and
// what its arguments and numerics are); there are enough rows to fill the card, so the blocks of a
// multiprocessor overlap one's start and end with another's tiles.
// Launch contract (host twin: launch_shape in sparse_mla_prefill.space.hpp)
//   grid (heads / TILE_HEADS, rows): blocks of one row are neighbours and share its keys in the L2
//   block (256 / SLABS_PER_WARP + 32 * PRODUCER_WARPS)
//   smem sparse_mla_prefill_smem_bytes(...), dynamic   programmatic dependent launch: yes
//   arch sm_80 and later; BULK_COPY sm_90 and later; the exchange buffers are not used
#include "sparse_mla_prefill.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "sparse_mla_prefill.params.def"
#undef PARAM
#endif
constexpr int NSPLIT = 1, KEY_GROUPS = 1;
#define SPARSE_MLA_PREFILL
#include "sparse_mla_decode.cuh"

namespace ingot::kernels {

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    sparse_mla_prefill(const __grid_constant__ SparseMlaDecodeArgs args) {
  attend(args, 0, blockIdx.x, blockIdx.y);
}

}  // namespace ingot::kernels
