// The keys that the tokens of a step see, as lists of slots for sparse_mla_decode in every layer:
// the raw window, the compressed entries of HCA layers, and how many there are for the indexer of
// CSA layers. Source: model specification section 3.7.
// Launch contract (host twin: launch_shape in attention_slots.space.hpp)
//   grid (SPLIT, rows)   block (THREADS)   cluster none   smem none   arch sm_80 and later
//   programmatic dependent launch: yes
//
// A block of compressed entries is seen by the token that completes it. Work follows a row's
// context, not the length of its list. A list that is too short for the context is cut and its
// count with it: nothing is written or read behind it.
#include "attention_slots.args.h"
#include "common/kv_layout.cuh"
#include "common/launch.cuh"
#include "common/types.cuh"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "attention_slots.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(RING % PAGE_ENTRIES == 0, "a ring is whole pages, so that slots count through it");
static_assert(RING >= WINDOW, "a token may not overwrite what it still sees");

// The slot of a position that the row sees.
__forceinline__ int slot_of(const AttentionSlotsArgs& args, int row, int sequence, int position) {
  if constexpr (WIDE) {
    const int other = row - (args.positions[row] - position);
    if (other >= 0 && args.sequences[other] == sequence) return args.pass_slots + other;
  }
  return sequence * RING + position % RING;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_slots(const __grid_constant__ AttentionSlotsArgs args) {
  const int thread = static_cast<int>(blockIdx.x * THREADS + threadIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  release_successor();
  wait_for_predecessor();
  if (row >= args.rows) return;
  const int sequence = args.sequences[row];
  const bool idle = sequence < 0;
  const int seen = idle ? 0 : args.positions[row] + 1;  // positions, with its own
  const int window = min(seen, WINDOW);
  const int compressed = min(seen / SLOTS_HCA_RATIO, args.hca_slots);
  const int ring = sequence * RING;
  if (thread == 0) {
    args.window_counts[row] = window;
    const int kept = ring + (seen - 1) % RING;
    if constexpr (WIDE) {
      args.append_slots[row] = idle ? -1 : args.pass_slots + row;
      const bool newest = row + RING >= args.rows || args.sequences[row + RING] != sequence;
      args.keep_slots[row] = idle || !newest ? -1 : kept;
    } else {
      args.append_slots[row] = idle ? -1 : kept;
    }
    args.hca_counts[row] = compressed;
    args.csa_counts[row] = seen / SLOTS_CSA_RATIO;
  }
  if (idle) return;
  int* const window_indices = args.window_indices + static_cast<i64>(row) * WINDOW;
  for (int i = thread; i < WINDOW; i += SPLIT * THREADS)
    window_indices[i] = i < window ? slot_of(args, row, sequence, seen - window + i) : -1;
  const int* const pages = args.page_table + static_cast<i64>(sequence) * args.page_stride;
  int* const hca_indices = args.hca_indices + static_cast<i64>(row) * args.hca_slots;
  for (int j = thread; j < compressed; j += SPLIT * THREADS)
    hca_indices[j] = pages[j / PAGE_ENTRIES] * PAGE_ENTRIES + j % PAGE_ENTRIES;
}

}  // namespace ingot::kernels
