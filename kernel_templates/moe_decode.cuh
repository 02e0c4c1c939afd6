// Routed experts of a decode step in one launch: grouping by expert, gate and up, clamp and SwiGLU,
// quantisation, down, the weighted sum over a token's experts. e2m1 weights with a ue8m0 scale per
// 32 columns, e4m3 inputs with a scale per 128.
// Launch contract (host twin: launch_shape in moe_decode.space.hpp)
//   grid (blocks), at most one per multiprocessor: all are resident at once, they meet at barriers
//   block (32 * (WARPS + REDUCE_WARPS + 2))   cluster none   smem moe_decode_smem_bytes(...),
//   dynamic arch sm_80 and later; BULK_COPY sm_90 and later   programmatic dependent launch: yes
//   one launch at a time uses the workspaces and the counters
//
// Roles in a block: WARPS warps multiply, REDUCE_WARPS add their sums, one warp streams weights,
// one streams inputs. STAGE_JOBS warps share a stage of the ring, a job each; with more than that,
// groups take turns. The weight stream follows from the routing alone, so it runs through both
// products and the barriers between them: weights of down fill the ring while activations are
// exchanged.
//   gate/up: the strips (16 rows of gate and of up, all columns) of all token blocks, cut into
//   equal contiguous ranges of stages. A strip cut between two blocks leaves two pieces, which
//   are added in that order.
//   A second token block of an expert takes turns with the first, strip by strip, where the inputs
//   of both are at hand: else its weights would have left L2 before they are read again.
//   down: a block owns strips of 32 output rows of all experts, so the sum over experts stays in
//   its shared memory, in the order of expert ids.
//
// Numerics: products are exact in f16, sums fp32, rounded to bf16 where the reference does: gate,
// up, the activation before its quantisation and, with ROUND_EXPERTS, an expert's output. Every sum
// has a fixed order: two launches give the same bits. NaN stays in its token: tokens are columns
// of the mma, and a group of activations with a NaN gets a NaN scale.
#include "common/barrier.cuh"
#include "common/bf16.cuh"
#include "common/f16.cuh"
#include "common/fp8.cuh"
#include "common/grid_barrier.cuh"
#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "moe_decode.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "moe_decode.params.def"
#undef PARAM
#endif
#include "common/moe_job.cuh"
#include "common/moe_plan.cuh"

namespace ingot::kernels {

static_assert(INTER == 256 || INTER == 512 || INTER == 1024 || INTER == 2048, "whole segments");
static_assert(STAGE_JOBS == 2 || STAGE_JOBS == 4 || STAGE_JOBS == 8, "a stage is 4 to 17 KiB");
static_assert(HIDDEN % (STAGE_JOBS * MOE_JOB_COLS) == 0, "a strip is whole stages");
static_assert(NMAX >= 1 && NMAX <= 8 && TOPK <= 32, "tokens are the N of the mma");
static_assert(REDUCE_WARPS >= 1 && (X_BUFFERS == 1 || X_BUFFERS == 2), "roles");

constexpr int GROUPS = WARPS / STAGE_JOBS;  // of multiplying warps
static_assert(GROUPS * STAGE_JOBS == WARPS && GROUPS <= 4, "whole groups");
static_assert(STAGES >= GROUPS && STAGES % GROUPS == 0, "each group has stages of its own");
static_assert(STAGES <= MOE_MOST_STAGES, "barriers");
constexpr int ALL_BUT_STREAMS = WARPS + REDUCE_WARPS, WEIGHT_WARP = ALL_BUT_STREAMS,
              INPUT_WARP = WEIGHT_WARP + 1, THREADS = (ALL_BUT_STREAMS + 2) * 32;
constexpr int STAGE_BYTES = STAGE_JOBS * MOE_JOB_BYTES, STAGE_COLS = STAGE_JOBS * MOE_JOB_COLS;
constexpr int STRIP_STAGES = HIDDEN / STAGE_COLS;  // of gate/up
constexpr int BLOCK_STRIPS = INTER / 16;           // of gate/up, of a token block
constexpr int BLOCK_STAGES = BLOCK_STRIPS * STRIP_STAGES;
constexpr int OUT_STRIPS = HIDDEN / MOE_JOB_ROWS;
constexpr int INTER_JOBS = INTER / MOE_JOB_COLS;  // of down, of a strip
constexpr int RECORD = moe_record_bytes(INTER);
constexpr int X_PITCH = moe_x_pitch(HIDDEN), X_SCALE_PITCH = moe_x_scale_pitch(HIDDEN);
constexpr int X_ROW = moe_x_row_bytes(HIDDEN), X_SCALE_BYTES = 4 * moe_x_scales(HIDDEN);
using moe::RESIDENT;
using moe::SEGMENT_BLOCKS;
using moe::SEGMENT_STAGES;
// Down: warps that share a token block, each with two jobs or more of it. With several blocks in a
// segment a stage holds whole blocks and half of the group's warps; else its stages split K.
constexpr int SLICES = STAGE_JOBS / SEGMENT_BLOCKS;
constexpr bool WHOLE_BLOCKS = SEGMENT_BLOCKS > 1;
constexpr int STAGE_BLOCKS = WHOLE_BLOCKS ? SEGMENT_BLOCKS / SEGMENT_STAGES : 1;
constexpr int COPY_JOBS = WHOLE_BLOCKS ? INTER_JOBS : STAGE_JOBS;  // contiguous
static_assert(SLICES * SEGMENT_BLOCKS == STAGE_JOBS, "warps share a segment evenly");

// Shared memory.
constexpr int REGION = STAGES * STAGE_BYTES;
constexpr int REGION_BYTES =
    moe_region_bytes(HIDDEN, INTER, TOPK, BATCH, NMAX, X_BUFFERS, BARRIERS, STAGE_JOBS, WARPS);
constexpr int REDUCE = REGION + REGION_BYTES;
constexpr int REDUCE_BUFFERS = moe_reduce_groups(WARPS, STAGE_JOBS);
constexpr int REDUCE_FLOATS = STAGE_JOBS * 8 * MOE_SUM_PITCH;  // of a buffer
constexpr int SMEM_BYTES = moe_decode_smem_bytes(HIDDEN, INTER, EXPERTS, TOPK, BATCH, WARPS,
                                                 STAGE_JOBS, STAGES, NMAX, X_BUFFERS, BARRIERS);
constexpr int SYNC = SMEM_BYTES - moe_plan_bytes(EXPERTS, TOPK, BATCH, NMAX);
constexpr int OUT_SUM_BYTES = BATCH * MOE_JOB_ROWS * 4;  // of the region, after gate/up
// Barriers, by index; a named one for each group of warps that meet.
constexpr int FULL = 0, EMPTY = STAGES, X_FULL = 2 * STAGES, X_EMPTY = X_FULL + 2,
              H_FULL = X_EMPTY + 2, H_EMPTY = H_FULL + MOE_H_SLOTS,
              SUM_FULL = H_EMPTY + MOE_H_SLOTS, SUM_EMPTY = SUM_FULL + REDUCE_BUFFERS,
              SECOND_PASSED = SUM_EMPTY + REDUCE_BUFFERS;
constexpr int REDUCERS_MEET = 1, MIDDLE_MEET = 2, PLAN_MADE = 3;
constexpr int COPY_ARRIVALS = BULK_COPY ? 1 : 32;

// A copy to shared memory by one warp. Bulk copies are announced and issued by single lanes; before
// sm_90 all lanes copy 16 bytes at a time, and each arrives when its own have landed.
template <bool READ_ONCE>
struct Copier {
  u64 policy;
  int lane;

  __forceinline__ explicit Copier(int lane_) : policy(0), lane(lane_) {
    if constexpr (BULK_COPY && READ_ONCE) policy = barrier::evict_first_policy();
  }
  __forceinline__ void expect(u32 bar, int bytes) const {
    if constexpr (BULK_COPY) {
      if (lane == 0) barrier::arrive_expect(bar, bytes);
      __syncwarp();
    }
  }
  // @param owner  the lane that issues it
  __forceinline__ void copy(u32 to, const void* from, int bytes, u32 bar, int owner) const {
    if constexpr (BULK_COPY) {
      if (lane != owner % 32) return;
      if constexpr (READ_ONCE)
        barrier::copy_bulk(to, from, bytes, bar, policy);
      else
        barrier::copy_bulk(to, from, bytes, bar);
    } else {
      for (int i = lane * 16; i < bytes; i += 512)
        ptx::copy16_async(to + i, static_cast<const u8*>(from) + i);
    }
  }
  __forceinline__ void done(u32 bar) const {
    if constexpr (!BULK_COPY) barrier::arrive_when_copied(bar);
  }
};

// A place in a ring of `size` and the parity of its round. Places p, p + GROUPS, ... of the rings
// belong to group p % GROUPS, for good: whoever waits for a place has seen all its earlier rounds,
// so one parity says which round it is.
struct Place {
  int at;
  u32 round;
  // by <= size
  __forceinline__ void advance(int by, int size) {
    at += by;
    if (at >= size) {
      at -= size;
      round ^= 1;
    }
  }
};

struct Block {
  const MoeDecodeArgs& args;
  u8* base;
  u32 barriers;  // shared address
  moe::Plan& plan;
  int warp, lane, pairs;

  // Set when the plan is known.
  int quota;  // stages of gate/up of a block
  int first_stage, end_stage;
  int segments;           // of down, of one strip
  int x_rows, x_buffers;  // of an input buffer
  int h_slot, h_slots;    // bytes and number of activation slots

  __forceinline__ Block(const MoeDecodeArgs& a, u8* memory)
      : args(a),
        base(memory),
        barriers(ptx::shared_address(memory) + SYNC),
        plan(*reinterpret_cast<moe::Plan*>(memory + SYNC + MOE_BARRIERS * 8)),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32),
        pairs(TOPK * a.tokens) {}

  __forceinline__ u32 bar(int index) const { return barriers + index * 8; }
  __forceinline__ u8* region() const { return base + REGION; }
  __forceinline__ u32 shared(const u8* at) const { return ptx::shared_address(at); }
  __forceinline__ float* reduce_buffer(int buffer) const {
    return reinterpret_cast<float*>(base + REDUCE) + buffer * REDUCE_FLOATS;
  }
  __forceinline__ float* out_sums() const { return reinterpret_cast<float*>(region()); }
  __forceinline__ u8* h_rows() const { return region() + OUT_SUM_BYTES; }

  __forceinline__ void set_up_barriers() const {
    const auto some = [&](int first, int count, int arrivals) {
      if (lane < count) barrier::init(bar(first + lane), arrivals);
    };
    if (warp == WEIGHT_WARP) {
      some(FULL, STAGES, COPY_ARRIVALS);
      some(EMPTY, STAGES, STAGE_JOBS * barrier::WARP_ARRIVALS);
      barrier::publish_init();
    } else if (warp == INPUT_WARP) {
      some(X_FULL, 2, COPY_ARRIVALS);
      some(X_EMPTY, 2, WARPS * barrier::WARP_ARRIVALS);
      some(H_FULL, MOE_H_SLOTS, COPY_ARRIVALS);
      some(H_EMPTY, MOE_H_SLOTS, STAGE_JOBS * barrier::WARP_ARRIVALS);
      some(SUM_FULL, REDUCE_BUFFERS, STAGE_JOBS * barrier::WARP_ARRIVALS);
      some(SUM_EMPTY, REDUCE_BUFFERS, REDUCE_WARPS * barrier::WARP_ARRIVALS);
      some(SECOND_PASSED, 1, 1);
      barrier::publish_init();
    }
    __syncwarp();
  }

  // Rows of a token block, or of all tokens, to an input buffer.
  template <class TokenOf>
  __forceinline__ void copy_inputs(const Copier<false>& copier, int buffer, int rows,
                                   int pitch_rows, TokenOf token_of) const {
    u8* to = region() + buffer * pitch_rows * X_ROW;
    const u32 full = bar(X_FULL + buffer);
    copier.expect(full, rows * (HIDDEN + X_SCALE_BYTES));
    for (int r = 0; r < rows; ++r) {
      const i64 token = token_of(r);
      copier.copy(shared(to) + r * X_PITCH, args.x + token * HIDDEN, HIDDEN, full, r);
      copier.copy(shared(to) + pitch_rows * X_PITCH + r * X_SCALE_PITCH * 4,
                  args.x_scale + token * moe_x_scales(HIDDEN), X_SCALE_BYTES, full, r);
    }
    copier.done(full);
  }

  __forceinline__ void make_plan() {
    if constexpr (RESIDENT) {
      // The inputs need no routing: they are on their way before the ids have arrived.
      if (warp == INPUT_WARP)
        copy_inputs(Copier<false>(lane), 0, args.tokens, args.tokens, [](int r) { return r; });
      // One warp makes the plan and goes on to stream weights at once.
      if (warp == WEIGHT_WARP) {
        plan.make_in_warp(args.experts, pairs, lane);
        ptx::arrive_threads(PLAN_MADE, THREADS);
      } else {
        ptx::sync_threads(PLAN_MADE, THREADS);
      }
    } else {
      plan.template make_in_block<THREADS>(args.experts, args.tokens, base + REDUCE, threadIdx.x);
    }
    const int stages = plan.blocks * BLOCK_STAGES, blocks = gridDim.x;
    // No strip is cut into more than two pieces.
    quota = max((STRIP_STAGES + 1) / 2, (stages + blocks - 1) / blocks);
    if (WHOLE_STRIPS)
      quota = (quota + STRIP_STAGES - 1) / STRIP_STAGES * STRIP_STAGES;
    else if (quota * 2 > STRIP_STAGES && quota < STRIP_STAGES - 1)
      quota = STRIP_STAGES - 1;
    first_stage = min(static_cast<int>(blockIdx.x) * quota, stages);
    end_stage = min(first_stage + quota, stages);
    segments = plan.segments();
    x_rows = RESIDENT ? args.tokens : plan.most_tokens;
    x_buffers = REGION_BYTES >= 2 * x_rows * X_ROW ? 2 : 1;
    h_slot = plan.most_segment_rows * RECORD;
    h_slots = BARRIERS == 1
                  ? 1
                  : min(MOE_H_SLOTS, (REGION_BYTES - OUT_SUM_BYTES) / h_slot) / GROUPS * GROUPS;
  }

  // Calls visit(segment) for the segments of every output strip of this block, in order.
  template <class Visit>
  __forceinline__ void for_each_segment(Visit visit) const {
    for (int strip = blockIdx.x; strip < OUT_STRIPS; strip += gridDim.x)
      for (int s = 0; s < segments; ++s)
        visit(strip, s);
  }
  // Stages of gate/up that fall to a group.
  __forceinline__ int group_stages(int group) const {
    return (end_stage - first_stage + GROUPS - 1 - group) / GROUPS;
  }
  __forceinline__ int strip_end(int stage) const {
    return stage / STRIP_STAGES * STRIP_STAGES + STRIP_STAGES;
  }
  // Token blocks that gate/up takes together, strip by strip.
  struct Unit {
    int block, blocks;
  };
  __forceinline__ Unit unit_of(int v) const {
    const int couple = plan.couple(v);
    return {couple == moe::SECOND_OF_TWO ? v - 1 : v, couple == moe::ALONE ? 1 : 2};
  }
  struct Strip {
    int block, strip;
  };
  __forceinline__ Strip strip_of(int stage) const {
    const Unit unit = unit_of(stage / BLOCK_STAGES);
    const int strip = stage / STRIP_STAGES - unit.block * BLOCK_STRIPS;
    return unit.blocks == 1 ? Strip{unit.block, strip} : Strip{unit.block + strip % 2, strip / 2};
  }
  // The inverse: the first stage of a strip.
  __forceinline__ int stage_of(int v, int strip) const {
    const Unit unit = unit_of(v);
    return (unit.block * BLOCK_STRIPS + strip * unit.blocks + v - unit.block) * STRIP_STAGES;
  }

  __forceinline__ void stream_weights() const;
  __forceinline__ void stream_inputs() const;
  __forceinline__ void exchange(u32 before_first) const;
  struct Sums {  // of four columns, in up to two pieces
    float4 gate[2], up[2];
    float weight;
    bool cut;
  };
  __forceinline__ Sums load_sums(int task) const;
  __forceinline__ void make_activations(const Sums& sums, u8* records, int task) const;
  __forceinline__ void make_activations(u8* records, int first, int step) const;
};

// ---- streams

__forceinline__ void Block::stream_weights() const {
  const Copier<true> copier(lane);
  const u32 ring = shared(base);
  Place place{0, 1};
  const auto next = [&](int bytes) {  // waits for a free stage and announces what will fill it
    barrier::wait(bar(EMPTY + place.at), place.round);
    copier.expect(bar(FULL + place.at), bytes);
  };
  for (int stage = first_stage; stage < end_stage; ++stage) {
    const auto [v, strip] = strip_of(stage);
    next(STAGE_BYTES);
    const i64 at = (static_cast<i64>(plan.expert(v)) * BLOCK_STRIPS + strip) * STRIP_STAGES +
                   stage % STRIP_STAGES;
    copier.copy(ring + place.at * STAGE_BYTES, args.gate_up + at * STAGE_BYTES, STAGE_BYTES,
                bar(FULL + place.at), 0);
    copier.done(bar(FULL + place.at));
    place.advance(1, STAGES);
  }
  int n = 0;  // segments so far: group n % GROUPS's turn
  for_each_segment([&](int strip, int s) {
    const int group = n % GROUPS;
    const int sequence = group_stages(group) + n / GROUPS * SEGMENT_STAGES;
    place = {group + sequence % (STAGES / GROUPS) * GROUPS,
             static_cast<u32>(sequence / (STAGES / GROUPS) & 1) ^ 1};
    ++n;
    for (int i = 0; i < SEGMENT_STAGES; ++i) {
      const int first = s * SEGMENT_BLOCKS + (WHOLE_BLOCKS ? i * STAGE_BLOCKS : 0);
      const int live = min(STAGE_BLOCKS, max(0, plan.blocks - first));
      next(live * COPY_JOBS * MOE_JOB_BYTES);
      for (int b = 0; b < live; ++b) {
        const i64 expert = plan.expert(first + b);
        const i64 job =
            (expert * OUT_STRIPS + strip) * INTER_JOBS + (WHOLE_BLOCKS ? 0 : i * STAGE_JOBS);
        copier.copy(ring + place.at * STAGE_BYTES + b * COPY_JOBS * MOE_JOB_BYTES,
                    args.down + job * MOE_JOB_BYTES, COPY_JOBS * MOE_JOB_BYTES,
                    bar(FULL + place.at), b);
      }
      copier.done(bar(FULL + place.at));
      place.advance(GROUPS, STAGES);
    }
  });
}

__forceinline__ void Block::stream_inputs() const {
  const Copier<false> copier(lane);
  if (!RESIDENT && first_stage < end_stage) {
    Place place{0, 1};
    const Unit last = unit_of((end_stage - 1) / BLOCK_STAGES);
    for (int v = unit_of(first_stage / BLOCK_STAGES).block; v < last.block + last.blocks; ++v) {
      barrier::wait(bar(X_EMPTY + place.at), place.round);
      const int first = plan.first[v];
      copy_inputs(copier, place.at, plan.count[v], x_rows,
                  [&](int r) { return static_cast<int>(plan.token[first + r]); });
      place.advance(1, x_buffers);
    }
  }
  if (BARRIERS == 2 && static_cast<int>(blockIdx.x) < OUT_STRIPS) {
    barrier::wait(bar(SECOND_PASSED), 0);
    grid_barrier::wait(args.counters + MOE_COUNTER_STRIDE, plan.before_second);
    grid_barrier::order_bulk_copies();
    Place place{0, 1};
    for_each_segment([&](int, int s) {
      const int first = plan.first[s * SEGMENT_BLOCKS], bytes = plan.segment_rows(s) * RECORD;
      const u32 full = bar(H_FULL + place.at);
      barrier::wait(bar(H_EMPTY + place.at), place.round);
      copier.expect(full, bytes);
      copier.copy(shared(h_rows()) + place.at * h_slot,
                  args.activations + static_cast<i64>(first) * RECORD, bytes, full, 0);
      copier.done(full);
      place.advance(1, h_slots);
    });
  }
}

// ---- between the products

// A task is 128 columns of a pair, by a warp, four columns a lane.
constexpr int PAIR_TASKS = INTER / 128;
__forceinline__ Block::Sums Block::load_sums(int task) const {
  const int pair = task / PAIR_TASKS, group = task % PAIR_TASKS, col = group * 128 + lane * 4;
  const i64 at = static_cast<i64>(pair) * 2 * INTER + col;
  const i64 second = static_cast<i64>(pairs) * 2 * INTER;
  const auto load = [&](i64 index) {
    const uint4 words = ptx::load_relaxed(args.sums + index);
    return make_float4(__uint_as_float(words.x), __uint_as_float(words.y), __uint_as_float(words.z),
                       __uint_as_float(words.w));
  };
  Sums sums;
  sums.gate[0] = load(at);
  sums.up[0] = load(at + INTER);
  sums.weight =
      moe::WEIGHTS_KEPT ? plan.weight[pair] : ptx::load_float(args.weights + plan.slot[pair]);
  // Was the strip of these columns cut between two blocks?
  const int begin = stage_of(plan.block[pair], group * 8 + lane / 4);
  sums.cut = !WHOLE_STRIPS && (begin + STRIP_STAGES - 1) / quota * quota > begin;
  if (sums.cut) {
    sums.gate[1] = load(at + second);
    sums.up[1] = load(at + second + INTER);
  }
  return sums;
}

// Adds the pieces, clamps, SwiGLU, quantises. Source: model specification section 3.11.
__forceinline__ void Block::make_activations(const Sums& sums, u8* records, int task) const {
  const int group = task % PAIR_TASKS, col = group * 128 + lane * 4;
  u8* const record = records + static_cast<i64>(task / PAIR_TASKS) * RECORD;
  float4 gate = sums.gate[0], up = sums.up[0];
  if (sums.cut) {
    const float4 &g = sums.gate[1], &u = sums.up[1];
    gate.x += g.x, gate.y += g.y, gate.z += g.z, gate.w += g.w;
    up.x += u.x, up.y += u.y, up.z += u.z, up.w += u.w;
  }
  const float gates[4] = {gate.x, gate.y, gate.z, gate.w}, ups[4] = {up.x, up.y, up.z, up.w};
  float h[4];
  u32 largest = 0;  // as bits, so that NaN is the largest
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float g = to_float(to_bf16(gates[i] * moe::JOB_FACTOR));
    float u = to_float(to_bf16(ups[i] * moe::JOB_FACTOR));
    g = g > args.limit ? args.limit : g;  // keeps NaN
    u = u > args.limit ? args.limit : u < -args.limit ? -args.limit : u;
    const float silu = __fdividef(g, 1.0f + exp2_approx(-1.4426950408889634f * g));
    h[i] = to_float(to_bf16(sums.weight * (silu * u)));
    largest = max(largest, __float_as_uint(h[i]) & 0x7fffffffu);
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    largest = max(largest, __shfl_xor_sync(~0u, largest, lanes));
  const int exponent = fp8::scale_exponent(__uint_as_float(largest));
  const float inverse = fp8::inverse_power_of_two(exponent);
  *reinterpret_cast<u32*>(record + col) = fp8::from_floats(h[0] * inverse, h[1] * inverse) |
                                          (fp8::from_floats(h[2] * inverse, h[3] * inverse) << 16);
  if (lane == 0)
    *reinterpret_cast<float*>(record + INTER + group * 4) =
        largest > fp8::kInfinityBits ? __uint_as_float(0x7fffffffu) : fp8::power_of_two(exponent);
}

// Tasks first, first + step, ...: two at a time, whose round trips to L2 overlap.
__forceinline__ void Block::make_activations(u8* records, int first, int step) const {
  for (int task = first; task < pairs * PAIR_TASKS; task += 2 * step) {
    const int other = task + step;
    const bool both = other < pairs * PAIR_TASKS;
    const Sums one = load_sums(task);
    Sums two;
    if (both) two = load_sums(other);
    make_activations(one, records, task);
    if (both) make_activations(two, records, other);
  }
}

// Afterwards the activations are in this block's shared memory (one barrier) or in global memory
// behind a second barrier, at which the input warp waits.
// @param before_first  of the first barrier's counter, in the thread that waits there
__forceinline__ void Block::exchange(u32 before_first) const {
  const bool reduces = warp >= WARPS;
  if (reduces) {
    ptx::sync_threads(REDUCERS_MEET, REDUCE_WARPS * 32);
    if (warp == WARPS) {
      if (lane == 0) {
        grid_barrier::arrive(args.counters);
        grid_barrier::wait(args.counters, before_first);
      }
      __syncwarp();
    }
  }
  ptx::sync_threads(MIDDLE_MEET, ALL_BUT_STREAMS * 32);  // from here on no input row is read
  if constexpr (BARRIERS == 1) {
    if (static_cast<int>(blockIdx.x) < OUT_STRIPS)
      make_activations(h_rows(), warp, ALL_BUT_STREAMS);
    ptx::sync_threads(MIDDLE_MEET, ALL_BUT_STREAMS * 32);
  } else {
    make_activations(args.activations, warp * gridDim.x + blockIdx.x, ALL_BUT_STREAMS * gridDim.x);
    grid_barrier::order_bulk_copies();
    ptx::sync_threads(MIDDLE_MEET, ALL_BUT_STREAMS * 32);
    if (warp == WARPS && lane == 0) {
      grid_barrier::arrive(args.counters + MOE_COUNTER_STRIDE);
      barrier::arrive(bar(SECOND_PASSED));
    }
  }
}

// ---- multiplying warps. Stage i of the block is group i % GROUPS's. A segment (the stages that
// share sums: a strip, or token blocks of down) may leave sums of several groups; each group has a
// buffer for them. A lone group's segments alternate between two.

struct Multiplier {
  const Block& block;
  int group, slice, lane, row, column;
  float sums[2][4];
  int flushes;

  __forceinline__ explicit Multiplier(const Block& b)
      : block(b),
        group(b.warp / STAGE_JOBS),
        slice(b.warp % STAGE_JOBS),
        lane(b.lane),
        row(b.lane / 4),
        column(b.lane % 4),
        flushes(0) {}

  __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums[m][e] = 0.0f;
  }
  // Hands the sums to the reducing warps; with `live` false only says that there are none.
  __forceinline__ void flush(bool live) {
    const int buffer = GROUPS == 1 ? flushes & 1 : group;
    const u32 round = (GROUPS == 1 ? flushes >> 1 : flushes) & 1;
    ++flushes;
    barrier::wait(block.bar(SUM_EMPTY + buffer), round ^ 1);
    if (live) {
      float* to = block.reduce_buffer(buffer) + (slice * 8 + 2 * column) * MOE_SUM_PITCH + row;
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        to[m * 16] = sums[m][0];
        to[m * 16 + MOE_SUM_PITCH] = sums[m][1];
        to[m * 16 + 8] = sums[m][2];
        to[m * 16 + 8 + MOE_SUM_PITCH] = sums[m][3];
      }
    }
    barrier::arrive_warp(block.bar(SUM_FULL + buffer), lane);
  }
  // The stage is free as soon as this warp has its job in registers.
  __forceinline__ void release(int stage) const {
    barrier::arrive_warp(block.bar(EMPTY + stage), lane);
  }

  __forceinline__ void gate_up() {
    const moe::Plan& plan = block.plan;
    Place place{group, 0}, input{0, 0};
    for (int stage = block.first_stage; stage < block.end_stage;) {
      const Block::Unit unit = block.unit_of(stage / BLOCK_STAGES);
      const int unit_end = min(block.end_stage, (unit.block + unit.blocks) * BLOCK_STAGES);
      const u8* x_row = nullptr;
      const float *even = nullptr, *odd = nullptr;
      int aimed = -1;
      const auto aim = [&](int which) {
        if (which == aimed) return;
        aimed = which;
        const int v = unit.block + which, count = plan.count[v], first = plan.first[v];
        // Resident rows are in the order of tokens, others in that of the block's columns.
        const auto row_of = [&](int c) {
          c = min(c, count - 1);
          return RESIDENT ? static_cast<int>(plan.token[first + c]) : c;
        };
        const int buffer = moe::COUPLES ? input.at ^ which : input.at;
        const u8* x = block.region() + buffer * block.x_rows * X_ROW;
        const float* scales = reinterpret_cast<const float*>(x + block.x_rows * X_PITCH) + slice;
        x_row = x + row_of(row) * X_PITCH + slice * MOE_JOB_COLS + column * 8;
        even = scales + row_of(2 * column) * X_SCALE_PITCH;
        odd = scales + row_of(2 * column + 1) * X_SCALE_PITCH;
      };
      aim(0);
      barrier::wait(block.bar(X_FULL + input.at), input.round);
      if (unit.blocks == 2)
        barrier::wait(block.bar(X_FULL + (input.at ^ 1)), input.round ^ (input.at == 1 ? 1 : 0));
      while (stage < unit_end) {
        const int end = min(block.strip_end(stage), unit_end);
        const int turn = (stage - block.first_stage) % GROUPS;
        int mine = stage + (group - turn + GROUPS) % GROUPS;
        if (mine < end) {
          if (moe::COUPLES && unit.blocks == 2) aim(stage / STRIP_STAGES % 2);
          clear();
          for (; mine < end; mine += GROUPS) {
            const int k = mine % STRIP_STAGES;
            const float2 x_scale = make_float2(even[k * STAGE_JOBS], odd[k * STAGE_JOBS]);
            moe::Job job;
            barrier::wait(block.bar(FULL + place.at), place.round);
            job.load(block.base + place.at * STAGE_BYTES + slice * MOE_JOB_BYTES, lane);
            release(place.at);
            moe::multiply(sums, job, x_row + k * STAGE_COLS, x_scale);
            place.advance(GROUPS, STAGES);
          }
          flush(true);
        }
        stage = end;
      }
      if (!RESIDENT) {
        for (int i = 0; i < unit.blocks; ++i) {
          barrier::arrive_warp(block.bar(X_EMPTY + input.at), lane);
          input.advance(1, block.x_buffers);
        }
      }
    }
    // Resident inputs come to blocks without a stage, too, and must not land on what follows.
    if (RESIDENT && block.first_stage == block.end_stage) barrier::wait(block.bar(X_FULL), 0);
  }

  // A group takes every GROUPS-th segment.
  __forceinline__ void down() {
    const moe::Plan& plan = block.plan;
    const int before = block.group_stages(group);
    Place place{group + before % (STAGES / GROUPS) * GROUPS,
                static_cast<u32>(before / (STAGES / GROUPS)) & 1};
    Place slot{group, 0};
    int n = 0;  // segments so far
    block.for_each_segment([&](int, int s) {
      if (n++ % GROUPS != group) return;
      const int v = s * SEGMENT_BLOCKS + slice / SLICES;
      const bool live = v < plan.blocks;
      const int count = live ? plan.count[v] : 1;
      const int first_row =
          (live ? plan.first[v] : 0) - (BARRIERS == 1 ? 0 : plan.first[s * SEGMENT_BLOCKS]);
      const u8* h = block.h_rows() + (BARRIERS == 1 ? 0 : slot.at * block.h_slot) +
                    (live ? first_row * RECORD : 0);
      const int job0 = WHOLE_BLOCKS ? slice % SLICES * 2 : slice;  // of this warp
      const u8* const x_row = h + min(row, count - 1) * RECORD + job0 * MOE_JOB_COLS + column * 8;
      const auto scales = [&](int c) {
        return reinterpret_cast<const float*>(h + min(c, count - 1) * RECORD + INTER) + job0;
      };
      const float* const even = scales(2 * column);
      const float* const odd = scales(2 * column + 1);
      if (BARRIERS == 2) barrier::wait(block.bar(H_FULL + slot.at), slot.round);
      clear();
#pragma unroll 1
      for (int i = 0; i < SEGMENT_STAGES; ++i) {
        // Also by warps without a job in it: an early arrival would count for the wrong round.
        barrier::wait(block.bar(FULL + place.at), place.round);
        const u8* stage = block.base + place.at * STAGE_BYTES;
        if constexpr (WHOLE_BLOCKS) {
          if (live && slice / (STAGE_JOBS / 2) == i) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
              moe::Job job;
              job.load(stage + (slice % (STAGE_JOBS / 2) * 2 + j) * MOE_JOB_BYTES, lane);
              if (j == 1) release(place.at);
              moe::multiply(sums, job, x_row + j * MOE_JOB_COLS, make_float2(even[j], odd[j]));
            }
          } else {
            release(place.at);
          }
        } else {
          moe::Job job;
          job.load(stage + slice * MOE_JOB_BYTES, lane);
          release(place.at);
          const int j = i * STAGE_JOBS;
          moe::multiply(sums, job, x_row + j * MOE_JOB_COLS, make_float2(even[j], odd[j]));
        }
        place.advance(GROUPS, STAGES);
      }
      if (BARRIERS == 2) {
        barrier::arrive_warp(block.bar(H_EMPTY + slot.at), lane);
        slot.advance(GROUPS, block.h_slots);
      }
      flush(live);
    });
  }
};

// ---- reducing warps

struct Reducer {
  const Block& block;
  int index, lane;
  u32 rounds;  // parity of every buffer
  int segment;

  __forceinline__ explicit Reducer(const Block& b)
      : block(b), index(b.warp - WARPS), lane(b.lane), rounds(0), segment(0) {}

  __forceinline__ void wait(u32 buffers) const {
#pragma unroll
    for (int b = 0; b < REDUCE_BUFFERS; ++b)
      if ((buffers >> b & 1) != 0) barrier::wait(block.bar(SUM_FULL + b), rounds >> b & 1);
  }
  __forceinline__ void release(u32 buffers) {
#pragma unroll
    for (int b = 0; b < REDUCE_BUFFERS; ++b)
      if ((buffers >> b & 1) != 0) barrier::arrive_warp(block.bar(SUM_EMPTY + b), lane);
    rounds ^= buffers;
    ++segment;
  }
  // Buffers that hold sums of stages [stage, stage + count).
  __forceinline__ u32 buffers_of(int stage, int count) const {
    if (GROUPS == 1) return 1u << (segment & 1);
    if (count >= GROUPS) return (1u << GROUPS) - 1;
    u32 buffers = 0;
    for (int i = 0; i < count; ++i)
      buffers |= 1u << ((stage + i) % GROUPS);
    return buffers;
  }
  // Sums of `slices` warps from `slice` on, for one token: a row a lane.
  template <int COUNT>
  __forceinline__ float sum(u32 buffers, int slice, int token) const {
    float total = 0.0f;
#pragma unroll
    for (int b = 0; b < REDUCE_BUFFERS; ++b)
      if ((buffers >> b & 1) != 0) {
        const float* from = block.reduce_buffer(b) + (slice * 8 + token) * MOE_SUM_PITCH + lane;
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
          total += from[k * 8 * MOE_SUM_PITCH];
      }
    return total;
  }

  __forceinline__ void gate_up() {
    const moe::Plan& plan = block.plan;
    for (int stage = block.first_stage; stage < block.end_stage;) {
      const auto [v, strip] = block.strip_of(stage);
      const int count = plan.count[v], end = min(block.strip_end(stage), block.end_stage);
      // Rows of a job: 8 of gate, 8 of up, twice.
      const int at = lane / 8 % 2 * INTER + strip * 16 + lane / 16 * 8 + lane % 8;
      const i64 plane = stage % STRIP_STAGES != 0 ? pairs() : 0;
      float* const to = block.args.sums + (plane + plan.first[v]) * 2 * INTER + at;
      const u32 buffers = buffers_of(stage - block.first_stage, end - stage);
      wait(buffers);
      for (int c = index; c < count; c += REDUCE_WARPS)
        ptx::store_relaxed(to + static_cast<i64>(c) * 2 * INTER,
                           __float_as_uint(sum<STAGE_JOBS>(buffers, 0, c)));
      release(buffers);
      stage = end;
    }
  }
  __forceinline__ i64 pairs() const {
    return block.pairs;
  }

  // The same of four rows from `row` on, of one buffer.
  template <int COUNT>
  __forceinline__ float4 sum4(u32 buffers, int slice, int token, int row) const {
    const int buffer = __ffs(buffers) - 1;
    const float* from = block.reduce_buffer(buffer) + (slice * 8 + token) * MOE_SUM_PITCH + row;
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
      const float4 x = *reinterpret_cast<const float4*>(from + k * 8 * MOE_SUM_PITCH);
      total.x += x.x, total.y += x.y, total.z += x.z, total.w += x.w;
    }
    return total;
  }

  // Tokens are dealt to the warps, so that one adds all experts of a token, by ascending id. Eight
  // lanes take a pair, four rows each: four pairs at a time.
  __forceinline__ void down() {
    const moe::Plan& plan = block.plan;
    float* const out_sums = block.out_sums();
    const int which = lane / 8, row = lane % 8 * 4;
    int n = 0;
    block.for_each_segment([&](int strip, int s) {
      if (s == 0) {
        for (int t = index; t < block.args.tokens; t += REDUCE_WARPS)
          out_sums[t * MOE_JOB_ROWS + lane] = 0.0f;
        __syncwarp();
      }
      const int first = plan.first[s * SEGMENT_BLOCKS], rows = plan.segment_rows(s);
      const u32 buffers = GROUPS == 1 ? 1u << (segment & 1) : 1u << (n % GROUPS);
      ++n;
      bool waited = false;
      for (int done = 0; done < rows; done += 32) {
        // A lane looks up a pair: its token, the slice of its block, its column there.
        u32 code = 0;
        bool mine = false;
        if (done + lane < rows) {
          const int pair = first + done + lane, v = plan.block[pair], token = plan.token[pair];
          code = static_cast<u32>(token | ((v - s * SEGMENT_BLOCKS) * SLICES) << 16 |
                                  (pair - plan.first[v]) << 24);
          mine = token % REDUCE_WARPS == index;
        }
        u32 todo = __ballot_sync(~0u, mine);
        if (!waited) wait(buffers);
        waited = true;
        while (todo != 0) {
          u32 left = todo;
#pragma unroll
          for (int i = 0; i < 3; ++i)
            if (i < which) left &= left - 1;
#pragma unroll
          for (int i = 0; i < 4; ++i)
            todo &= todo - 1;
          const bool live = left != 0;
          const u32 one = __shfl_sync(~0u, code, live ? __ffs(left) - 1 : 0);
          const int token = live ? static_cast<int>(one & 0xffff) : -1 - which;
          int turn = 0;  // pairs of the same token that come first
#pragma unroll
          for (int d = 1; d < 4; ++d) {
            const int other = __shfl_up_sync(~0u, token, 8 * d);
            turn += which >= d && other == token ? 1 : 0;
          }
          float4 x = sum4<SLICES>(buffers, static_cast<int>(one >> 16 & 0xff),
                                  static_cast<int>(one >> 24), row);
          const auto scaled = [](float sum) {
            return ROUND_EXPERTS ? to_float(to_bf16(sum * moe::JOB_FACTOR)) : sum * moe::JOB_FACTOR;
          };
          x = make_float4(scaled(x.x), scaled(x.y), scaled(x.z), scaled(x.w));
          const auto add = [&](int now) {
            if (!live || turn != now) return;
            float4& to = *reinterpret_cast<float4*>(out_sums + token * MOE_JOB_ROWS + row);
            const float4 old = to;
            to = make_float4(old.x + x.x, old.y + x.y, old.z + x.z, old.w + x.w);
          };
          add(0);
          __syncwarp();
          for (int now = 1; __any_sync(~0u, turn >= now); ++now) {
            add(now);
            __syncwarp();
          }
        }
      }
      release(buffers);
      if (s == block.segments - 1)
        for (int t = index; t < block.args.tokens; t += REDUCE_WARPS)
          block.args.out[static_cast<i64>(t) * HIDDEN + strip * MOE_JOB_ROWS + lane] =
              out_sums[t * MOE_JOB_ROWS + lane];
    });
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    moe_decode(const __grid_constant__ MoeDecodeArgs args) {
  Block block(args, ptx::dynamic_shared_memory());
  block.set_up_barriers();
  release_successor();
  wait_for_predecessor();
  block.make_plan();
  if (block.warp == WEIGHT_WARP) {
    block.stream_weights();
  } else if (block.warp == INPUT_WARP) {
    block.stream_inputs();
  } else if (block.warp < WARPS) {
    Multiplier math(block);
    math.gate_up();
    block.exchange(0);
    math.down();
  } else {
    u32 before_first = 0;
    if (block.warp == WARPS && block.lane == 0) {
      before_first = grid_barrier::before(args.counters);
      block.plan.before_second = grid_barrier::before(args.counters + MOE_COUNTER_STRIDE);
    }
    if constexpr (moe::WEIGHTS_KEPT)
      for (int p = (block.warp - WARPS) * 32 + block.lane; p < block.pairs; p += REDUCE_WARPS * 32)
        block.plan.weight[p] = ptx::load_float(args.weights + block.plan.slot[p]);
    Reducer reducer(block);
    reducer.gate_up();
    block.exchange(before_first);
    reducer.down();
  }
}

}  // namespace ingot::kernels
