// Sparse MLA prefill on Hopper's wgmma: attention of many query rows, each over its own window and
// its own selected keys. What it computes, its arguments and contracts are those of
// sparse_mla_decode.cuh (unsplit rows; the exchange buffers are not used).
// Launch contract (host twin: launch_shape in sparse_mla_prefill_sm90.space.hpp)
//   grid (blocks), any number; block (512)   arch sm_90a
//   smem sparse_mla_prefill_sm90_smem_bytes(...), dynamic   programmatic dependent launch: yes
//
// An item is a row and TILE_HEADS of its heads; block b works on items b, b + grid, …, so that rows
// that are neighbours, and share most of their window, run at the same time. Keys of the next item
// are on their way while the last one finishes.
//
// Operands are swapped: M is 64 keys (S^T = K Q^T) or 64 value dimensions (O^T = V^T P^T), N is
// TILE_HEADS. A comes from registers: raw FP8 by matrix loads, converted and scaled in flight, so
// that nothing dequantised is ever stored; B (Q and P) lies in shared memory in plain 8 x 8 blocks.
//
// Warps 0-3 and 4-7 are the math warpgroups, each with half of the 512 dimensions in both products:
// their partial S^T are added in shared memory. Warps 8-11 do the softmax, 12-15 bring keys. S of
// the next tile is multiplied before V of this one, so the tensor cores work while the softmax
// does; a tile's keys are needed for two of these steps only, which leaves the ring for requests.
//
// Numerics: as sparse_mla_decode_sm90.cuh. Rope dimensions enter as f16 relative to the key's unit:
// exact for values between 2^-14 and 2^9 units; smaller ones are rounded to 2^-24 units. Every sum
// has a fixed order. A row without keys has one tile of unused slots. Unused slots are zeroed
// before their tile is used, so no value of another row, NaN or not, is ever multiplied.
#include "common/barrier.cuh"
#include "common/f16.cuh"
#include "common/fp8.cuh"
#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "common/wgmma_f16.cuh"
#include "sparse_mla_prefill_sm90.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "sparse_mla_prefill_sm90.params.def"
#undef PARAM
#endif
constexpr bool BULK_COPY = true;
#include "common/sparse_mla.cuh"
#include "common/sparse_mla_producer.cuh"

namespace ingot::kernels {

constexpr int TILE_KV = MLA_PREFILL_TILE_KV, QUANT_SLABS = 7;
constexpr int MATH_THREADS = 256, SOFTMAX_THREADS = 128, PRODUCER_WARPS = 4;
constexpr int THREADS = MLA_PREFILL_THREADS;
constexpr int FIRST_SOFTMAX = MATH_THREADS / 32, FIRST_PRODUCER = FIRST_SOFTMAX + 4;  // warps
constexpr int HEAD_TILES = TILE_HEADS / 8;
// P is at most 2^(BOOST + GROWTH), within f16.
constexpr float GROWTH = 8.0f, BOOST = 6.0f;
// Group scales relative to a key's unit are at most 2^5, so that those 2^20 smaller are still
// exact. Below 2^-7 no unit is needed for codes, and rope values up to 511 fit.
constexpr int UNIT_HEADROOM = 5, UNIT_FLOOR = -7;
constexpr int SCORE_STRIDE = TILE_KV + MLA_SCORE_PAD;
// Registers of a thread: math, softmax, producers. In sum what the launch gives four warpgroups.
constexpr int MATH_REGISTERS = 208, SOFTMAX_REGISTERS = 72, PRODUCER_REGISTERS = 24;

constexpr int MATH = 1;  // named barrier

static_assert(TILE_HEADS == 8 || TILE_HEADS == 16 || TILE_HEADS == 32 || TILE_HEADS == 64, "N");
static_assert(STAGES >= 2, "two tiles are in use at once");
static_assert(STAGES <= 32, "one lane sets up one stage");
static_assert(THREADS == MATH_THREADS + SOFTMAX_THREADS + 32 * PRODUCER_WARPS, "warps");
static_assert(2 * MATH_REGISTERS + SOFTMAX_REGISTERS + PRODUCER_REGISTERS <= 65536 / 128, "");

struct alignas(128) SharedStorage {
  u8 rows[STAGES][TILE_KV][MLA_SMEM_ROW_BYTES];
  // Q [64 blocks of 8 dimensions][heads][8], as it came ([heads][512]) until it is converted.
  alignas(16) u16 q[TILE_HEADS * MLA_DIMS];
  alignas(16) float scores[2][TILE_HEADS][SCORE_STRIDE];  // partial S of each math warpgroup
  alignas(16) u16 p[TILE_HEADS * TILE_KV];                // [8 blocks of 8 keys][heads][8]
  // Of a key: S to a score, base 2; log2(unit) or -inf; 1 / unit.
  alignas(16) float score_scales[STAGES][TILE_KV];
  alignas(16) float log2_units[STAGES][TILE_KV];
  alignas(16) float inverses[STAGES][TILE_KV];
  alignas(16) uint2 scales[SCALES_BESIDE ? 2 : STAGES * TILE_KV];
  u16 factors[STAGES][QUANT_SLABS][TILE_KV];  // scale over unit, f16
  int used[STAGES][TILE_KV];
  float corrections[TILE_HEADS];  // of O, when a maximum moved
  float results[TILE_HEADS];      // of the finished O
  float2 rotations[MLA_ROPE_DIMS / 2];
  alignas(16) int moved[4];  // whether any maximum of a softmax warp's heads moved
  u64 full[STAGES], tables_full[STAGES], empty[STAGES];
  u64 q_full, scores_full, scores_empty, p_full, p_empty;
};
constexpr int SMEM_BYTES = sparse_mla_prefill_sm90_smem_bytes(TILE_HEADS, STAGES, SCALES_BESIDE);
static_assert(sizeof(SharedStorage) <= SMEM_BYTES, "the host's formula covers the storage");
static_assert(sizeof(SharedStorage) + 127 >= SMEM_BYTES, "the host's formula wastes nothing");

using Ring = sparse_mla::Ring<STAGES, TILE_KV, PRODUCER_WARPS>;

__forceinline__ u32 scaled_f16(u32 bf16_pair, float low_factor, float high_factor) {
  return pack_f16(low_to_float(bf16_pair) * low_factor, high_to_float(bf16_pair) * high_factor);
}

// The items of this block, one after the other; the counts of the next one are asked for early.
struct Items {
  const SparseMlaDecodeArgs& args;
  int item, head_tiles, next_window = 0, next_selected = 0;

  __forceinline__ explicit Items(const SparseMlaDecodeArgs& a)
      : args(a), item(blockIdx.x), head_tiles(a.heads / TILE_HEADS) {
    request(item);
  }
  __forceinline__ void request(int of) {
    if (!exists(of)) return;
    next_window = ptx::load_int(args.window_counts + of / head_tiles);
    next_selected = sparse_mla::selected_count(args, of / head_tiles);
  }
  __forceinline__ bool exists(int of) const { return of < args.rows * head_tiles; }
  __forceinline__ int next() const { return item + static_cast<int>(gridDim.x); }
  __forceinline__ int row() const { return item / head_tiles; }
  __forceinline__ int first_head() const { return item % head_tiles * TILE_HEADS; }
  // Of the item whose counts were asked for last. An item without keys has one tile, too.
  __forceinline__ int tiles() const {
    return max((next_window + next_selected + TILE_KV - 1) / TILE_KV, 1);
  }
};

// Tiles of all items in one sequence: stage and parities.
struct Place {
  int stage = 0;
  u32 round = 0, turn = 0;  // parity of the ring's round and of the tile
  __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, round ^= 1;
    turn ^= 1;
  }
};

struct Math {
  SharedStorage& shared;
  int thread, lane, warp, group, warp_in_group, row, column;
  u64 q_blocks, p_blocks;

  float o[4][TILE_HEADS / 2];  // 4 x 16 of this warp's 64 dimensions

  __forceinline__ explicit Math(SharedStorage& s)
      : shared(s),
        thread(threadIdx.x),
        lane(threadIdx.x % 32),
        // One value of the warp, so that descriptors stay in uniform registers.
        warp(__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0)),
        group(warp / 4),
        warp_in_group(warp % 4),
        row(threadIdx.x % 32 / 4),
        column(threadIdx.x % 4) {
    q_blocks =
        wgmma_f16::advance(wgmma_f16::descriptor(ptx::shared_address(shared.q), TILE_HEADS * 16),
                           group * (TILE_HEADS * MLA_DIMS));
    p_blocks = wgmma_f16::descriptor(ptx::shared_address(shared.p), TILE_HEADS * 16);
  }
  __forceinline__ static void sync_math() { ptx::sync_threads(MATH, MATH_THREADS); }
  __forceinline__ void arrive(const u64& at) const {
    __syncwarp();
    if (lane == 0) barrier::arrive(ptx::shared_address(&at));
  }

  __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int e = 0; e < TILE_HEADS / 2; ++e)
        o[i][e] = 0.0f;
  }
  // Q from [heads][512] bf16 to blocks of f16. The 16 dimensions of an FP8 k-step are permuted so
  // that a lane's share of K is one 32-bit word of codes. Eight lanes take a diagonal of an 8 x 8
  // block of (head, 8 dimensions), so neither reads nor writes meet in a bank.
  __forceinline__ void convert_q() {
    constexpr int ITEMS = 2 * HEAD_TILES;
    uint4 in[ITEMS];
    const auto place = [&](int item, int& head, int& block) {
      constexpr int WARPS_ASIDE = 8 / HEAD_TILES;  // at the same heads
      const int half = warp / HEAD_TILES % WARPS_ASIDE + item * WARPS_ASIDE;
      head = warp % HEAD_TILES * 8 + lane % 8;
      block = half / 2 * 8 + ((lane % 8) ^ (half % 2 * 4 + lane / 8));
    };
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
      int head, block;
      place(item, head, block);
      in[item] = *reinterpret_cast<const uint4*>(&shared.q[head * MLA_DIMS + block * 8]);
    }
    sync_math();
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
      int head, block;
      place(item, head, block);
      const u32 a = scaled_f16(in[item].x, 1.0f, 1.0f), b = scaled_f16(in[item].y, 1.0f, 1.0f),
                c = scaled_f16(in[item].z, 1.0f, 1.0f), d = scaled_f16(in[item].w, 1.0f, 1.0f);
      if (block < MLA_QUANT_DIMS / 8) {
        u16* to = &shared.q[(block / 2 * 2 * TILE_HEADS + head) * 8 + block % 2 * 4];
        *reinterpret_cast<uint2*>(to) = make_uint2(a, c);
        *reinterpret_cast<uint2*>(to + TILE_HEADS * 8) = make_uint2(b, d);
      } else {
        *reinterpret_cast<uint4*>(&shared.q[(block * TILE_HEADS + head) * 8]) =
            make_uint4(a, b, c, d);
      }
    }
    barrier::publish_to_async_proxy();
    sync_math();
  }

  // K of half-slab `i` of this warpgroup's eight, as it lies in shared memory, and its scales.
  struct RawKeys {
    u32 words[2][4];  // the second half: rope dimensions, twice as wide
    u32 low_scale, high_scale;
  };
  __forceinline__ void load_keys(RawKeys& raw, int i, int stage) const {
    const int slab = group * 4 + i / 2, key = warp_in_group * 16 + row;  // and key + 8
    const u32 from = ptx::shared_address(&shared.rows[stage][warp_in_group * 16 + lane % 16][0]) +
                     lane / 16 * 16 + slab * 64;
    if (i < 6 || group == 0) {
      ptx::load_matrices(raw.words[0], from + i % 2 * 32);
      if (i % 2 == 0) {
        raw.low_scale = shared.factors[stage][slab][key] * 0x10001u;
        raw.high_scale = shared.factors[stage][slab][key + 8] * 0x10001u;
      }
    } else {
      ptx::load_matrices(raw.words[0], from + i % 2 * 64);
      ptx::load_matrices(raw.words[1], from + i % 2 * 64 + 32);
      if (i % 2 == 0) {
        raw.low_scale = __float_as_uint(shared.inverses[stage][key]);
        raw.high_scale = __float_as_uint(shared.inverses[stage][key + 8]);
      }
    }
  }
  // Its A fragments, relative to the keys' units: 2 k-steps.
  __forceinline__ void convert_keys(u32 (&x)[2][4], const RawKeys& raw, int i) const {
    if (i < 6 || group == 0) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const u32 low = raw.words[0][2 * j], high = raw.words[0][2 * j + 1];
        x[j][0] = multiply_f16(fp8::to_f16(low), raw.low_scale);
        x[j][1] = multiply_f16(fp8::to_f16(high), raw.high_scale);
        x[j][2] = multiply_f16(fp8::high_to_f16(low), raw.low_scale);
        x[j][3] = multiply_f16(fp8::high_to_f16(high), raw.high_scale);
      }
    } else {
      const float low_scale = __uint_as_float(raw.low_scale);
      const float high_scale = __uint_as_float(raw.high_scale);
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          x[j][2 * k] = scaled_f16(raw.words[j][2 * k], low_scale, low_scale);
          x[j][2 * k + 1] = scaled_f16(raw.words[j][2 * k + 1], high_scale, high_scale);
        }
    }
  }
  // Partial S^T of a tile, relative to the keys' units, to the softmax. Conversion of the next 32
  // dimensions overlaps the mma of the last ones.
  __forceinline__ void multiply_keys(const Place& at, bool first) const {
    barrier::wait(ptx::shared_address(&shared.full[at.stage]), at.round);
    barrier::wait(ptx::shared_address(&shared.tables_full[at.stage]), at.round);
    float s[TILE_HEADS / 2];
    u32 a[2][2][4];
    RawKeys raw;
    load_keys(raw, 0, at.stage);
    convert_keys(a[0], raw, 0);
    load_keys(raw, 1, at.stage);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      wgmma_f16::fence();
#pragma unroll
      for (int j = 0; j < 2; ++j)
        wgmma_f16::multiply<TILE_HEADS>(
            s, a[i % 2][j], wgmma_f16::advance(q_blocks, (i * 2 + j) * TILE_HEADS * 32), i + j > 0);
      wgmma_f16::commit();
      if (i == 7) break;
      if (i > 0) wgmma_f16::wait<1>();
      convert_keys(a[(i + 1) % 2], raw, i + 1);
      if (i < 6) load_keys(raw, i + 2, at.stage);
    }
    wgmma_f16::wait<0>();
    wgmma_f16::hold(s);
    if (!first) barrier::wait(ptx::shared_address(&shared.scores_empty), at.turn ^ 1);
    float* const to = &shared.scores[group][2 * column][warp_in_group * 16 + row];
#pragma unroll
    for (int n = 0; n < HEAD_TILES; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        to[(n * 8 + e) * SCORE_STRIDE] = s[4 * n + e];
        to[(n * 8 + e) * SCORE_STRIDE + 8] = s[4 * n + 2 + e];
      }
    arrive(shared.scores_full);
  }

  __forceinline__ float2 heads_of(const float* of, int n) const {
    return *reinterpret_cast<const float2*>(&of[n * 8 + 2 * column]);
  }
  __forceinline__ void rescale() {
    const uint4 moved = *reinterpret_cast<const uint4*>(shared.moved);
    if ((moved.x | moved.y | moved.z | moved.w) == 0) return;
#pragma unroll
    for (int n = 0; n < HEAD_TILES; ++n) {
      const float2 correction = heads_of(shared.corrections, n);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        o[i][4 * n] *= correction.x;
        o[i][4 * n + 1] *= correction.y;
        o[i][4 * n + 2] *= correction.x;
        o[i][4 * n + 3] *= correction.y;
      }
    }
  }

  __forceinline__ bool is_rope() const {
    return warp == 7;
  }
  // V of 16 dimensions of this warp's slab as it lies in shared memory: 64 keys; of rope dimensions
  // 32, the others come when they are converted.
  using RawValues = u32[2][4];
  __forceinline__ u32 values_at(int i, int stage) const {
    const u32 rows = ptx::shared_address(&shared.rows[stage][0][0]) + warp * 64;
    return is_rope()
               ? rows + i * 32 + lane / 8 % 2 * 16 + (lane % 8 + lane / 16 * 8) * MLA_SMEM_ROW_BYTES
               : rows + i * 16 + lane * MLA_SMEM_ROW_BYTES;
  }
  __forceinline__ void load_values(RawValues& raw, int i, int stage) const {
    const u32 from = values_at(i, stage);
    const u32 next = (is_rope() ? 16 : 32) * MLA_SMEM_ROW_BYTES;
    ptx::load_matrices_transposed(raw[0], from);
    ptx::load_matrices_transposed(raw[1], from + next);
  }
  // Scales of this warp's slab, for pairs of this lane's keys.
  __forceinline__ void load_scales(u32 (&scales)[8], int stage) const {
    if (is_rope()) return;
    const u16* const from = &shared.factors[stage][warp][2 * column];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      scales[i] = *reinterpret_cast<const u32*>(from + i * 8);
  }
  // A fragments of V^T for 16 dimensions of each warp's slab: 4 k-steps of 16 keys. The bytes of
  // two keys that a transposed load brings together belong to dimensions 2 * row and 2 * row + 1,
  // which are taken as rows row and row + 8 of A; rope dimensions lie in order.
  __forceinline__ void convert_values(u32 (&x)[4][4], RawValues& raw, const u32 (&scales)[8], int i,
                                      int stage) const {
    if (!is_rope()) {
#pragma unroll
      for (int step = 0; step < 4; ++step)
#pragma unroll
        for (int y = 0; y < 2; ++y) {
          const u32 word = __byte_perm(raw[step / 2][step % 2 * 2 + y], 0, 0x3120);
          x[step][2 * y] = multiply_f16(fp8::to_f16(word), scales[2 * step + y]);
          x[step][2 * y + 1] = multiply_f16(fp8::high_to_f16(word), scales[2 * step + y]);
        }
    } else {
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        if (step >= 2)
          ptx::load_matrices_transposed(raw[step % 2],
                                        values_at(i, stage) + step * 16 * MLA_SMEM_ROW_BYTES);
#pragma unroll
        for (int y = 0; y < 2; ++y) {  // keys 2 * column, + 1 and 8 more
          const float2 inverse = *reinterpret_cast<const float2*>(
              &shared.inverses[stage][step * 16 + y * 8 + 2 * column]);
          x[step][2 * y] = scaled_f16(raw[step % 2][2 * y], inverse.x, inverse.y);
          x[step][2 * y + 1] = scaled_f16(raw[step % 2][2 * y + 1], inverse.x, inverse.y);
        }
      }
    }
  }
  // O^T += V^T P^T of one tile, for this warpgroup's 256 dimensions.
  __forceinline__ void multiply_values(const Place& at) {
    u32 a[2][4][4], scales[8];
    RawValues raw;
    load_scales(scales, at.stage);
    load_values(raw, 0, at.stage);
    convert_values(a[0], raw, scales, 0, at.stage);  // needs no P yet
    load_values(raw, 1, at.stage);
    barrier::wait(ptx::shared_address(&shared.p_full), at.turn);
    rescale();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      wgmma_f16::fence();
#pragma unroll
      for (int step = 0; step < 4; ++step)
        wgmma_f16::multiply<TILE_HEADS>(o[i], a[i % 2][step],
                                        wgmma_f16::advance(p_blocks, step * TILE_HEADS * 32), 1);
      wgmma_f16::commit();
      if (i == 3) break;
      if (i > 0) wgmma_f16::wait<1>();
      convert_values(a[(i + 1) % 2], raw, scales, i + 1, at.stage);
      if (i < 2) load_values(raw, i + 2, at.stage);
      if (i == 2) arrive(shared.empty[at.stage]);  // that was the last read of the tile
    }
    wgmma_f16::wait<0>();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      wgmma_f16::hold(o[i]);
    arrive(shared.p_empty);
  }

  // Hands every pair of results to put(head, i, first, second): o of head n * 8 + 2 * column + odd,
  // finished, of rows `row` and `row` + 8 of block i.
  template <class Put>
  __forceinline__ void for_each_result(bf16* heads, Put&& put) const {
    bf16* const to = heads + 2 * column * MLA_DIMS + warp * 64;
#pragma unroll
    for (int n = 0; n < HEAD_TILES; ++n) {
      const float2 factor = heads_of(shared.results, n);
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const float f = odd == 0 ? factor.x : factor.y;
#pragma unroll
        for (int i = 0; i < 4; ++i)
          put(to + (n * 8 + odd) * MLA_DIMS + i * 16, i, o[i][4 * n + odd] * f,
              o[i][4 * n + 2 + odd] * f);
      }
    }
  }
  // The finished item to the output: 32 bytes of a head from eight lanes.
  __forceinline__ void write(bf16* heads) const {
    if (!is_rope()) {
      for_each_result(heads, [&](bf16* to, int, float first, float second) {
        *reinterpret_cast<u32*>(to + 2 * row) = pack_bf16(first, second);
      });
      return;
    }
    // Dimensions row and row + 8: neighbours swap, so that each has a pair of neighbours.
    const bool upper = (row & 1) != 0;
    const int dim = upper ? row + 7 : row;
    float2 rotations[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      rotations[i] = shared.rotations[(i * 16 + dim) / 2];
    for_each_result(heads, [&](bf16* to, int i, float first, float second) {
      const float got = __shfl_xor_sync(0xffffffffu, upper ? first : second, 4);
      u32 pair = upper ? pack_bf16(got, second) : pack_bf16(first, got);
      if (INVERSE_ROPE) pair = sparse_mla::turn_back(pair, rotations[i]);
      *reinterpret_cast<u32*>(to + dim) = pair;
    });
  }
};

__forceinline__ void run_math(SharedStorage& shared, const SparseMlaDecodeArgs& args) {
  Math math(shared);
  Items items(args);
  Place ahead, at;  // of S and of PV
  u32 q_parity = 0;
  bool first_of_all = true;
#pragma unroll 1
  for (; items.exists(items.item); items.item = items.next()) {
    const int tiles = items.tiles();
    items.request(items.next());
    barrier::wait(ptx::shared_address(&shared.q_full), q_parity);
    q_parity ^= 1;
    math.convert_q();
    math.clear();
#pragma unroll 1
    for (int step = 0; step <= tiles; ++step) {  // S of tile `step`, then PV of the one before
      if (step < tiles) {
        math.multiply_keys(ahead, first_of_all);
        first_of_all = false;
        ahead.advance();
      }
      if (step > 0) {
        math.multiply_values(at);
        at.advance();
      }
    }
    math.write(args.out +
               (static_cast<i64>(items.row()) * args.heads + items.first_head()) * MLA_DIMS);
  }
}

struct Softmax {
  static constexpr int LANES = SOFTMAX_THREADS / TILE_HEADS;  // of a head
  static constexpr int KEYS = TILE_KV / LANES;                // of a lane
  // Runs of 16 keys, so that eight lanes' 16-byte reads of S meet in no bank.
  static constexpr int RUN = KEYS < 16 ? KEYS : 16;

  SharedStorage& shared;
  int thread, lane, head, part;
  float maximum, sum;  // of a head; of this lane's keys

  __forceinline__ explicit Softmax(SharedStorage& s)
      : shared(s),
        thread(threadIdx.x % SOFTMAX_THREADS),
        lane(threadIdx.x % 32),
        head(threadIdx.x % SOFTMAX_THREADS / LANES),
        part(threadIdx.x % LANES) {}

  // Units and relative scales of a tile.
  __forceinline__ void fill_tables(const Place& at) const {
    const int stage = at.stage, key = thread % TILE_KV, half = thread / TILE_KV;
    barrier::wait(ptx::shared_address(&shared.full[stage]), at.round);
    const uint2 scales =
        SCALES_BESIDE ? *reinterpret_cast<const uint2*>(&shared.rows[stage][key][MLA_ENTRY_BYTES])
                      : shared.scales[SCALES_BESIDE ? 0 : stage * TILE_KV + key];
    const bool used = shared.used[stage][key] != 0;
    const sparse_mla::Unit unit =
        used ? sparse_mla::unit_of<UNIT_HEADROOM, UNIT_FLOOR>(scales) : sparse_mla::Unit{0};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (half * 4 + i < QUANT_SLABS)
        shared.factors[stage][half * 4 + i][key] = static_cast<u16>(sparse_mla::relative_scale(
            ((half == 0 ? scales.x : scales.y) >> (8 * i)) & 0xffu, unit));
    if (half == 0) {
      shared.score_scales[stage][key] = sparse_mla::SCORE_SCALE * unit.value();
      shared.log2_units[stage][key] =
          used ? static_cast<float>(unit.exponent) : sparse_mla::negative_infinity();
      shared.inverses[stage][key] = unit.inverse();
    }
    __syncwarp();
    if (lane == 0) barrier::arrive(ptx::shared_address(&shared.tables_full[stage]));
  }

  __forceinline__ int key_of(int i) const {
    return i / RUN * (RUN * LANES) + part * RUN + i % RUN;
  }
  __forceinline__ static float4 four(const float* from) {
    return *reinterpret_cast<const float4*>(from);
  }
  // One tile: P and the correction of O from the partial S.
  __forceinline__ void weigh(const Place& at, bool first, bool first_of_all) {
    barrier::wait(ptx::shared_address(&shared.scores_full), at.turn);
    float s[KEYS];
#pragma unroll
    for (int i = 0; i < KEYS; i += 4) {
      const int key = key_of(i);
      const float4 a = four(&shared.scores[0][head][key]), b = four(&shared.scores[1][head][key]);
      const float4 scale = four(&shared.score_scales[at.stage][key]),
                   log2 = four(&shared.log2_units[at.stage][key]);
      s[i] = fmaf(a.x + b.x, scale.x, log2.x);
      s[i + 1] = fmaf(a.y + b.y, scale.y, log2.y);
      s[i + 2] = fmaf(a.z + b.z, scale.z, log2.z);
      s[i + 3] = fmaf(a.w + b.w, scale.w, log2.w);
    }
    __syncwarp();
    if (lane == 0) barrier::arrive(ptx::shared_address(&shared.scores_empty));
    float largest = s[0];
#pragma unroll
    for (int i = 1; i < KEYS; ++i)
      largest = fmaxf(largest, s[i]);
#pragma unroll
    for (int lanes = 1; lanes < LANES; lanes *= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, lanes));
    float correction = 1.0f;
    if (first) {
      maximum = largest;
      sum = 0.0f;
    } else if (largest > maximum + GROWTH) {
      correction = exp2_approx(maximum - largest);
      maximum = largest;
      sum *= correction;
    }
    const float base = maximum == sparse_mla::negative_infinity() ? 0.0f : maximum - BOOST;
#pragma unroll
    for (int i = 0; i < KEYS; i += 4) {
      const float4 inverse = four(&shared.inverses[at.stage][key_of(i)]);
      s[i] = exp2_approx(s[i] - base);
      s[i + 1] = exp2_approx(s[i + 1] - base);
      s[i + 2] = exp2_approx(s[i + 2] - base);
      s[i + 3] = exp2_approx(s[i + 3] - base);
      sum = fmaf(s[i], inverse.x, sum);
      sum = fmaf(s[i + 1], inverse.y, sum);
      sum = fmaf(s[i + 2], inverse.z, sum);
      sum = fmaf(s[i + 3], inverse.w, sum);
    }
    const bool moved = __any_sync(0xffffffffu, correction != 1.0f);
    if (!first_of_all) barrier::wait(ptx::shared_address(&shared.p_empty), at.turn ^ 1);
    if (part == 0) shared.corrections[head] = correction;
    if (lane == 0) shared.moved[thread / 32] = moved;
    constexpr int WORDS = KEYS < 8 ? 2 : 4;
#pragma unroll
    for (int i = 0; i < KEYS; i += 2 * WORDS) {
      const int key = key_of(i);
      u16* const to = &shared.p[(key / 8 * TILE_HEADS + head) * 8 + key % 8];
      const uint2 low = make_uint2(pack_f16(s[i], s[i + 1]), pack_f16(s[i + 2], s[i + 3]));
      if constexpr (WORDS == 2)
        *reinterpret_cast<uint2*>(to) = low;
      else
        *reinterpret_cast<uint4*>(to) =
            make_uint4(low.x, low.y, pack_f16(s[i + 4], s[i + 5]), pack_f16(s[i + 6], s[i + 7]));
    }
  }
  // What O is multiplied by at the end.
  __forceinline__ void finish(float sink) {
    float total = sum;
#pragma unroll
    for (int lanes = 1; lanes < LANES; lanes *= 2)
      total += __shfl_xor_sync(0xffffffffu, total, lanes);
    const float result = sparse_mla::Merge<1>::factor(make_float2(maximum - BOOST, total), sink);
    if (part == 0) shared.results[head] = result;
  }
  // P and what belongs to it to the math warpgroups.
  __forceinline__ void publish() const {
    barrier::publish_to_async_proxy();
    __syncwarp();
    if (lane == 0) barrier::arrive(ptx::shared_address(&shared.p_full));
  }
};

__forceinline__ void run_softmax(SharedStorage& shared, const SparseMlaDecodeArgs& args) {
  Softmax softmax(shared);
  Items items(args);
  const u32 q_full = ptx::shared_address(&shared.q_full);
  constexpr int Q_BYTES = TILE_HEADS * MLA_DIMS * 2;  // the heads of a tile are neighbours
  const auto q_of = [&](int item) { return args.q + static_cast<i64>(item) * (Q_BYTES / 2); };
  const auto copy_q = [&](int item) {
    barrier::arrive_expect(q_full, Q_BYTES);
    barrier::copy_bulk(ptx::shared_address(shared.q), q_of(item), Q_BYTES, q_full);
  };
  if (softmax.thread == 0 && items.exists(items.item)) copy_q(items.item);
  Place at;
  bool first_of_all = true;
#pragma unroll 1
  for (; items.exists(items.item); items.item = items.next()) {
    const int tiles = items.tiles(), row = items.row();
    const bool another = items.exists(items.next());
    items.request(items.next());
    if (another && softmax.thread == 0) barrier::prefetch_bulk(q_of(items.next()), Q_BYTES);
    float sink = sparse_mla::negative_infinity();
    if (HAS_SINK) sink = ptx::load_float(args.sink + items.first_head() + softmax.head);
    sparse_mla::RotationInputs rotation;
    if (INVERSE_ROPE) rotation.request(args, row, softmax.lane);
    if (first_of_all) softmax.fill_tables(at);
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      Place next = at;
      next.advance();
      if (tile + 1 < tiles || another) softmax.fill_tables(next);
      softmax.weigh(at, tile == 0, first_of_all && tile == 0);
      // The item before is written: scores of this one have come. Not at once, P 0 is waited for.
      if (INVERSE_ROPE && tile == min(tiles - 1, 1) && softmax.thread < 32)
        rotation.store(shared.rotations, softmax.lane);
      if (tile + 1 == tiles) {
        softmax.finish(sink);
        // All scores of the item have come, so nobody reads its Q any more.
        if (another && softmax.thread == 0) copy_q(items.next());
      }
      softmax.publish();
      at = next;
    }
    first_of_all = false;
  }
}

__forceinline__ void run_producer(SharedStorage& shared, const SparseMlaDecodeArgs& args) {
  const int producer = threadIdx.x / 32 - FIRST_PRODUCER, lane = threadIdx.x % 32;
  const Ring ring{ptx::shared_address(shared.full),
                  ptx::shared_address(shared.empty),
                  &shared.rows[0][0][0],
                  reinterpret_cast<u8*>(shared.scales),
                  &shared.used[0][0],
                  producer,
                  lane};
  Items items(args);
  if (!items.exists(items.item)) return;
  const int place = producer + lane * PRODUCER_WARPS;  // of this lane's key in every tile
  sparse_mla::Keys keys(args, items.row());
  keys.set_counts(items.next_window, items.next_selected);
  int index = keys.index(place, place < TILE_KV ? keys.count : 0);
  Place at;
  bool first_round = true;
#pragma unroll 1
  while (true) {
    const int tiles = items.tiles();
    const bool another = items.exists(items.next());
    items.request(items.next());
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const bool in_window = tile * TILE_KV + place < keys.window_count;
      int next = -1;
      if (tile + 1 < tiles) {
        next = keys.index((tile + 1) * TILE_KV + place, place < TILE_KV ? keys.count : 0);
      } else if (another) {
        keys = sparse_mla::Keys(args, items.next() / items.head_tiles);
        keys.set_counts(items.next_window, items.next_selected);
        next = keys.index(place, place < TILE_KV ? keys.count : 0);
      }
      if (!first_round) barrier::wait(ptx::shared_address(&shared.empty[at.stage]), at.round ^ 1);
      ring.request(args, in_window, index, at.stage, true, true);
      at.advance();
      if (at.stage == 0) first_round = false;
      index = next;
    }
    if (!another) return;
    items.item = items.next();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sparse_mla_prefill_sm90(const __grid_constant__ SparseMlaDecodeArgs args) {
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(ptx::dynamic_shared_memory());
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (warp == FIRST_PRODUCER) {
    if (lane < STAGES) {
      barrier::init(ptx::shared_address(&shared.full[lane]), Ring::ARRIVALS);
      barrier::init(ptx::shared_address(&shared.tables_full[lane]), 4);
      barrier::init(ptx::shared_address(&shared.empty[lane]), 8);
    }
    if (lane == 0) {
      barrier::init(ptx::shared_address(&shared.q_full), 1);
      barrier::init(ptx::shared_address(&shared.scores_full), 8);
      barrier::init(ptx::shared_address(&shared.scores_empty), 4);
      barrier::init(ptx::shared_address(&shared.p_full), 4);
      barrier::init(ptx::shared_address(&shared.p_empty), 8);
    }
    barrier::publish_init();
  }
  __syncthreads();
  release_successor();
  wait_for_predecessor();
  if (warp >= FIRST_PRODUCER) {
    ptx::give_registers<PRODUCER_REGISTERS>();
    run_producer(shared, args);
  } else if (warp >= FIRST_SOFTMAX) {
    ptx::give_registers<SOFTMAX_REGISTERS>();
    run_softmax(shared, args);
  } else {
    ptx::take_registers<MATH_REGISTERS>();
    run_math(shared, args);
  }
}

}  // namespace ingot::kernels
