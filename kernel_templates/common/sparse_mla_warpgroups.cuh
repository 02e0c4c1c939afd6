#pragma once
// The math warpgroups of the wgmma families of sparse MLA. Parameters of the family: TILE_HEADS,
// STAGES and the KV layout.
//
// Operands are swapped: M is 64 keys (S^T = K Q^T) or 64 value dimensions (O^T = V^T P^T), N is
// TILE_HEADS. A comes from registers: raw FP8 by matrix loads, converted and scaled in flight, so
// that nothing dequantised is ever stored; B (Q and P) lies in shared memory in plain 8 x 8 blocks.
//
// Warps 0-3 multiply keys: S of a tile goes to shared memory. Warps 4-11 have half of the heads
// each in the softmax and half of the dimensions in the product with V; while they work on a tile,
// S of the next one is made. Warps 12-15 bring keys.
//
// An mma whose A is in registers is accepted when the one before has finished, and holds its warp
// until then. So conversions stand between single mmas, two k-steps ahead: converted in groups
// they overlap the group's last mma only (measured).
//
// Rope dimensions enter as f16 relative to the key's unit: exact for values between 2^-14 and 2^9
// units; smaller ones are rounded to 2^-24 units.
#include "common/barrier.cuh"
#include "common/f16.cuh"
#include "common/fp8.cuh"
#include "common/ptx.cuh"
#include "common/sparse_mla.cuh"
#include "common/sparse_mla_producer.cuh"
#include "common/wgmma_f16.cuh"
#include "sparse_mla_decode_sm90.args.h"

namespace ingot::kernels::sparse_mla {

constexpr int TILE_KV = MLA_SM90_TILE_KV, QUANT_SLABS = 7;
constexpr int SCORE_THREADS = 128, VALUE_THREADS = 256, PRODUCER_WARPS = 4;
constexpr int FIRST_VALUE_WARP = SCORE_THREADS / 32;
constexpr int FIRST_PRODUCER = FIRST_VALUE_WARP + VALUE_THREADS / 32;
constexpr int THREADS = 32 * (FIRST_PRODUCER + PRODUCER_WARPS);
constexpr int HEAD_TILES = TILE_HEADS / 8;
// P is at most 2^(BOOST + GROWTH), within f16.
constexpr float GROWTH = 8.0f, BOOST = 6.0f;
// Group scales relative to a key's unit are at most 2^5, so that those 2^20 smaller are still
// exact. Below 2^-7 no unit is needed for codes, and rope values up to 511 fit.
constexpr int UNIT_HEADROOM = 5, UNIT_FLOOR = -7;
constexpr int SCORE_STRIDE = TILE_KV + MLA_SCORE_PAD;
// Each role's share of the 128 registers per thread at launch.
constexpr int SCORE_REGISTERS = 104, VALUE_REGISTERS = 192, PRODUCER_REGISTERS = 24;
constexpr int SCORE_BARRIER = 1, VALUE_BARRIER = 2;  // named barriers
constexpr int Q_BYTES = TILE_HEADS * MLA_DIMS * 2;   // the heads of a tile are neighbours

static_assert(SCORE_REGISTERS * SCORE_THREADS + VALUE_REGISTERS * VALUE_THREADS +
                      PRODUCER_REGISTERS * 32 * PRODUCER_WARPS <=
                  65536,
              "the roles share the register file");
static_assert(TILE_HEADS == 8 || TILE_HEADS == 16 || TILE_HEADS == 32 || TILE_HEADS == 64, "N");
static_assert(STAGES >= 2, "two tiles are in use at once");
static_assert(STAGES <= 32, "one lane sets up one stage");
static_assert(THREADS == MLA_SM90_THREADS, "warps");

struct TileStorage {
  u8 rows[STAGES][TILE_KV][MLA_SMEM_ROW_BYTES];
  // Q [64 blocks of 8 dimensions][heads][8], as it came ([heads][512]) until it is converted.
  alignas(16) u16 q[TILE_HEADS * MLA_DIMS];
  alignas(16) float scores[TILE_HEADS][SCORE_STRIDE];  // plus log2(unit), base 2; -inf unused
  alignas(16) u16 p[2][TILE_HEADS * TILE_KV];          // [tile % 2][8 blocks of 8 keys][heads][8]
  alignas(16) float inverses[STAGES][TILE_KV];         // 1 / unit of a key
  float2 terms[STAGES][TILE_KV];                       // S to a score: times x, plus y
  uint2 scales[SCALES_BESIDE ? 1 : STAGES * TILE_KV];
  u16 factors[STAGES][QUANT_SLABS][TILE_KV];  // scale over unit, f16
  int used[STAGES][TILE_KV];
  alignas(16) int moved[2][8];       // whether any maximum of a value warp's heads moved
  float corrections[2][TILE_HEADS];  // of O, when a maximum moved
  float2 totals[TILE_HEADS];         // maximum and sum of all keys
  u64 full[STAGES], empty[STAGES];
  u64 q_full, scores_full, scores_empty;
};

using KeyRing = Ring<STAGES, TILE_KV, PRODUCER_WARPS>;
__forceinline__ KeyRing ring_of(TileStorage& shared, int producer, int lane) {
  return {ptx::shared_address(shared.full),
          ptx::shared_address(shared.empty),
          &shared.rows[0][0][0],
          reinterpret_cast<u8*>(shared.scales),
          &shared.used[0][0],
          producer,
          lane};
}
// By one warp, before the block's first barrier.
__forceinline__ void set_up_barriers(TileStorage& shared, int lane) {
  if (lane < STAGES) {
    barrier::init(ptx::shared_address(&shared.full[lane]), KeyRing::ARRIVALS);
    barrier::init(ptx::shared_address(&shared.empty[lane]),
                  VALUE_THREADS / 32 * barrier::WARP_ARRIVALS);
  }
  if (lane == 0) {
    barrier::init(ptx::shared_address(&shared.q_full), 1);
    barrier::init(ptx::shared_address(&shared.scores_full),
                  SCORE_THREADS / 32 * barrier::WARP_ARRIVALS);
    barrier::init(ptx::shared_address(&shared.scores_empty),
                  VALUE_THREADS / 32 * barrier::WARP_ARRIVALS);
  }
  barrier::publish_init();
  __syncwarp();
}

// Tiles of all items in one sequence: stage and parities.
struct Place {
  int stage = 0;
  u32 round = 0, turn = 0;  // parity of the ring's round and of the tile
  __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, round ^= 1;
    turn ^= 1;
  }
};

__forceinline__ u32 scaled_f16(u32 bf16_pair, float low_factor, float high_factor) {
  return pack_f16(low_to_float(bf16_pair) * low_factor, high_to_float(bf16_pair) * high_factor);
}

struct Role {
  TileStorage& shared;
  int thread, lane, row, column;  // thread: of the role; row and column: of a fragment

  __forceinline__ Role(TileStorage& s, int first_thread)
      : shared(s),
        thread(threadIdx.x - first_thread),
        lane(threadIdx.x % 32),
        row(threadIdx.x % 32 / 4),
        column(threadIdx.x % 4) {}
  __forceinline__ static void wait(const u64& at, u32 parity) {
    barrier::wait(ptx::shared_address(&at), parity);
  }
  __forceinline__ void arrive(const u64& at) const {
    barrier::arrive_warp(ptx::shared_address(&at), lane);
  }
};

// Warps 0-3.
struct Scores : Role {
  int warp;
  u64 q_blocks;

  __forceinline__ explicit Scores(TileStorage& s) : Role(s, 0), warp(threadIdx.x / 32) {
    q_blocks = wgmma_f16::descriptor(ptx::shared_address(shared.q), TILE_HEADS * 16);
  }
  __forceinline__ static void sync() { ptx::sync_threads(SCORE_BARRIER, SCORE_THREADS); }

  // Eight dimensions of one head.
  __forceinline__ static uint4 to_f16(uint4 in) {
    return make_uint4(scaled_f16(in.x, 1.0f, 1.0f), scaled_f16(in.y, 1.0f, 1.0f),
                      scaled_f16(in.z, 1.0f, 1.0f), scaled_f16(in.w, 1.0f, 1.0f));
  }
  // Blocks 2 * pair and the next of one head. The 16 dimensions of an FP8 k-step are permuted so
  // that a lane's share of K is one 32-bit word of codes.
  __forceinline__ void store_blocks(int head, int pair, uint4 low, uint4 high) const {
    low = to_f16(low);
    high = to_f16(high);
    const bool codes = pair < MLA_QUANT_DIMS / 16;
    uint4* const to = reinterpret_cast<uint4*>(shared.q) + pair * 2 * TILE_HEADS + head;
    to[0] = codes ? make_uint4(low.x, low.z, high.x, high.z) : low;
    to[TILE_HEADS] = codes ? make_uint4(low.y, low.w, high.y, high.w) : high;
  }
  // Q from [heads][512] bf16 to blocks of f16, in place.
  __forceinline__ void convert_q() const {
    const uint4* const q = reinterpret_cast<const uint4*>(shared.q);
    constexpr int BLOCKS = MLA_DIMS / 8;
    if constexpr (TILE_HEADS == 64) {
      // 2 heads x 2 blocks go where the same of exchanged numbers came from: swapped in pairs, a
      // diagonal of them by each warp.
#pragma unroll 1
      for (int distance = warp; distance <= 16; distance += SCORE_THREADS / 32) {
        if (distance == 16 && lane >= 16) break;  // those pairs have been swapped
        const int a = lane, b = (lane + distance) % 32;
        uint4 in[2][2][2];
#pragma unroll
        for (int side = 0; side < 2; ++side)
#pragma unroll
          for (int head = 0; head < 2; ++head)
#pragma unroll
            for (int block = 0; block < 2; ++block)
              in[side][head][block] =
                  q[((side ? b : a) * 2 + head) * BLOCKS + (side ? a : b) * 2 + block];
#pragma unroll
        for (int side = 0; side < 2; ++side)
#pragma unroll
          for (int head = 0; head < 2; ++head)
            store_blocks((side ? b : a) * 2 + head, side ? a : b, in[side][head][0],
                         in[side][head][1]);
      }
    } else {
      constexpr int ITEMS = TILE_HEADS * BLOCKS / 2 / SCORE_THREADS;
      const auto pair_of = [&](int i) {  // along diagonals: few lanes meet in a bank
        return ((i * SCORE_THREADS + thread) / TILE_HEADS + thread) % (BLOCKS / 2);
      };
      const int head = thread % TILE_HEADS;
      uint4 in[ITEMS][2];
#pragma unroll
      for (int i = 0; i < ITEMS; ++i)
#pragma unroll
        for (int block = 0; block < 2; ++block)
          in[i][block] = q[head * BLOCKS + pair_of(i) * 2 + block];
      sync();
#pragma unroll
      for (int i = 0; i < ITEMS; ++i)
        store_blocks(head, pair_of(i), in[i][0], in[i][1]);
    }
    barrier::publish_to_async_proxy();
    sync();
  }

  // Units and relative scales of a tile, as soon as it has landed.
  __forceinline__ void fill_tables(const Place& at) const {
    const int stage = at.stage, key = thread % TILE_KV, half = thread / TILE_KV;
    wait(shared.full[stage], at.round);
    const uint2 scales =
        SCALES_BESIDE ? *reinterpret_cast<const uint2*>(&shared.rows[stage][key][MLA_ENTRY_BYTES])
                      : shared.scales[SCALES_BESIDE ? 0 : stage * TILE_KV + key];
    const bool used = shared.used[stage][key] != 0;
    const Unit unit = used ? unit_of<UNIT_HEADROOM, UNIT_FLOOR>(scales) : Unit{0};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (half * 4 + i < QUANT_SLABS)
        shared.factors[stage][half * 4 + i][key] = static_cast<u16>(
            relative_scale(((half == 0 ? scales.x : scales.y) >> (8 * i)) & 0xffu, unit));
    if (half == 0) {
      shared.inverses[stage][key] = unit.inverse();
      shared.terms[stage][key] =
          make_float2(SCORE_SCALE * unit.value(),
                      used ? static_cast<float>(unit.exponent) : negative_infinity());
    }
    sync();
  }

  // 32 dimensions of K as they lie in shared memory, and their scales.
  struct Raw {
    u32 words[8];  // codes take 4
    u32 scales[2];
  };
  static constexpr int STEPS = MLA_DIMS / 32, CODE_STEPS = MLA_QUANT_DIMS / 32;
  __forceinline__ void load_keys(Raw& raw, int step, int stage) const {
    const int key = warp * 16 + row;  // and key + 8
    const u32 rows = ptx::shared_address(&shared.rows[stage][warp * 16 + lane % 8][0]);
    u32(&w)[4] = reinterpret_cast<u32(&)[4]>(raw.words);
    if (step < CODE_STEPS) {
      // 16 codes of keys 0 … 7, the next 16, then the same of keys 8 … 15.
      ptx::load_matrices(
          w, rows + lane / 16 * (8 * MLA_SMEM_ROW_BYTES) + lane / 8 % 2 * 16 + step * 32);
      raw.scales[0] = shared.factors[stage][step / 2][key];
      raw.scales[1] = shared.factors[stage][step / 2][key + 8];
    } else {
      const u32 from = rows + lane / 8 * 16 + MLA_QUANT_DIMS + (step - CODE_STEPS) * 64;
      ptx::load_matrices(w, from);
      ptx::load_matrices(reinterpret_cast<u32(&)[4]>(raw.words[4]), from + 8 * MLA_SMEM_ROW_BYTES);
      raw.scales[0] = __float_as_uint(shared.inverses[stage][key]);
      raw.scales[1] = __float_as_uint(shared.inverses[stage][key + 8]);
    }
  }
  // A of one k-step, half `j` of a step, relative to the keys' units.
  __forceinline__ static void convert_keys(u32 (&x)[4], const Raw& raw, int step, int j) {
    if (step < CODE_STEPS) {
      const u32 low_scale = raw.scales[0] * 0x10001u, high_scale = raw.scales[1] * 0x10001u;
      const u32 low = raw.words[j], high = raw.words[2 + j];
      x[0] = multiply_f16(fp8::to_f16(low), low_scale);
      x[1] = multiply_f16(fp8::to_f16(high), high_scale);
      x[2] = multiply_f16(fp8::high_to_f16(low), low_scale);
      x[3] = multiply_f16(fp8::high_to_f16(high), high_scale);
    } else {
      const float low_scale = __uint_as_float(raw.scales[0]);
      const float high_scale = __uint_as_float(raw.scales[1]);
      x[0] = scaled_f16(raw.words[2 * j], low_scale, low_scale);
      x[1] = scaled_f16(raw.words[4 + 2 * j], high_scale, high_scale);
      x[2] = scaled_f16(raw.words[2 * j + 1], low_scale, low_scale);
      x[3] = scaled_f16(raw.words[4 + 2 * j + 1], high_scale, high_scale);
    }
  }
  // S^T of 64 keys, relative to their units.
  __forceinline__ void multiply_keys(float (&s)[TILE_HEADS / 2], int stage) const {
    constexpr int K_STEPS = 2 * STEPS, AHEAD = 2;
    u32 a[AHEAD + 1][4];
    Raw raw[2];
    load_keys(raw[0], 0, stage);
    load_keys(raw[1], 1, stage);
#pragma unroll
    for (int k = 0; k < AHEAD; ++k)
      convert_keys(a[k], raw[0], 0, k);
    load_keys(raw[0], 2, stage);
#pragma unroll
    for (int k = 0; k < K_STEPS; ++k) {
      wgmma_f16::fence();
      wgmma_f16::multiply<TILE_HEADS>(s, a[k % (AHEAD + 1)],
                                      wgmma_f16::advance(q_blocks, k * TILE_HEADS * 32), k > 0);
      wgmma_f16::commit();
      const int next = k + AHEAD, step = next / 2;
      if (next >= K_STEPS) continue;
      if (k > 0) wgmma_f16::wait<1>();
      convert_keys(a[next % (AHEAD + 1)], raw[step % 2], step, next % 2);
      if (next % 2 == 1 && step + 2 < STEPS) load_keys(raw[step % 2], step + 2, stage);
    }
    wgmma_f16::wait<0>();
    wgmma_f16::hold(s);
  }
  // One tile's S to the value warps. `also` runs when they have left the tile before and will wait
  // for this one. @param first  of the block
  template <class Also>
  __forceinline__ void make(const Place& at, bool first, Also&& also) const {
    fill_tables(at);
    float s[TILE_HEADS / 2];
    multiply_keys(s, at.stage);
    const int key = warp * 16 + row;
    const float2 low = shared.terms[at.stage][key], high = shared.terms[at.stage][key + 8];
    if (!first) wait(shared.scores_empty, at.turn ^ 1);
    float* const to = &shared.scores[2 * column][key];
#pragma unroll
    for (int n = 0; n < HEAD_TILES; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        to[(n * 8 + e) * SCORE_STRIDE] = fmaf(s[4 * n + e], low.x, low.y);
        to[(n * 8 + e) * SCORE_STRIDE + 8] = fmaf(s[4 * n + 2 + e], high.x, high.y);
      }
    also();
    arrive(shared.scores_full);
  }
};

// Warps 4-11.
struct Values : Role {
  // In the softmax a head belongs to LANES lanes of one warp, with KEYS neighbouring keys each.
  static constexpr int LANES = TILE_HEADS > 8 ? VALUE_THREADS / TILE_HEADS : 16;
  static constexpr int KEYS = TILE_KV / LANES, WARP_HEADS = 32 / LANES;

  int warp, group, warp_in_group;  // group: of dimensions
  u64 p_blocks;
  float maximum, sum;          // of the head; of this lane's keys
  float o[4][TILE_HEADS / 2];  // 4 x 64 dimensions of this warpgroup's half

  __forceinline__ explicit Values(TileStorage& s)
      : Role(s, SCORE_THREADS),
        warp(thread / 32),
        group(thread / 128),
        warp_in_group(thread / 32 % 4) {
    p_blocks = wgmma_f16::descriptor(ptx::shared_address(shared.p[0]), TILE_HEADS * 16);
  }
  __forceinline__ static void sync() { ptx::sync_threads(VALUE_BARRIER, VALUE_THREADS); }
  // This lane's place in the softmax.
  struct Share {
    int head, part;
  };
  __forceinline__ static Share share() {
    const int thread = ptx::thread_here() - SCORE_THREADS;
    return {thread / 32 * WARP_HEADS + thread % WARP_HEADS, thread % 32 / WARP_HEADS};
  }

  __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int e = 0; e < TILE_HEADS / 2; ++e)
        o[i][e] = 0.0f;
    maximum = negative_infinity();
    sum = 0.0f;
  }

  // P of a tile, and the corrections of O where a maximum moved.
  __forceinline__ void weigh(const Place& at, bool first) {
    const auto [head, part] = share();
    if (TILE_HEADS * LANES == VALUE_THREADS || head < TILE_HEADS) {
      float s[KEYS];
#pragma unroll
      for (int i = 0; i < KEYS; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(&shared.scores[head][part * KEYS + i]);
        s[i] = four.x;
        s[i + 1] = four.y;
        s[i + 2] = four.z;
        s[i + 3] = four.w;
      }
      arrive(shared.scores_empty);
      float four_largest[4] = {s[0], s[1], s[2], s[3]};
#pragma unroll
      for (int i = 4; i < KEYS; ++i)
        four_largest[i % 4] = fmaxf(four_largest[i % 4], s[i]);
      float largest =
          fmaxf(fmaxf(four_largest[0], four_largest[1]), fmaxf(four_largest[2], four_largest[3]));
#pragma unroll
      for (int lanes = WARP_HEADS; lanes < 32; lanes *= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, lanes));
      float correction = 1.0f;
      if (first) {
        maximum = largest;
      } else if (largest > maximum + GROWTH) {
        correction = exp2_approx(maximum - largest);
        maximum = largest;
        sum *= correction;
      }
      const float base = maximum == negative_infinity() ? 0.0f : maximum - BOOST;
      float sums[4] = {};
#pragma unroll
      for (int i = 0; i < KEYS; i += 4) {
        const float4 inverse =
            *reinterpret_cast<const float4*>(&shared.inverses[at.stage][part * KEYS + i]);
        s[i] = exp2_approx(s[i] - base);
        s[i + 1] = exp2_approx(s[i + 1] - base);
        s[i + 2] = exp2_approx(s[i + 2] - base);
        s[i + 3] = exp2_approx(s[i + 3] - base);
        sums[0] = fmaf(s[i], inverse.x, sums[0]);
        sums[1] = fmaf(s[i + 1], inverse.y, sums[1]);
        sums[2] = fmaf(s[i + 2], inverse.z, sums[2]);
        sums[3] = fmaf(s[i + 3], inverse.w, sums[3]);
      }
      sum += (sums[0] + sums[1]) + (sums[2] + sums[3]);
      const bool moved = __any_sync(0xffffffffu, correction != 1.0f);
      if (part == 0) shared.corrections[at.turn][head] = correction;
      if (lane == 0) shared.moved[at.turn][warp] = moved;
      constexpr int RUN = KEYS < 8 ? 4 : 8;
#pragma unroll
      for (int i = 0; i < KEYS; i += RUN) {
        const int key = part * KEYS + i;
        u16* const to = &shared.p[at.turn][(key / 8 * TILE_HEADS + head) * 8 + key % 8];
        const uint2 low = make_uint2(pack_f16(s[i], s[i + 1]), pack_f16(s[i + 2], s[i + 3]));
        if constexpr (RUN == 4)
          *reinterpret_cast<uint2*>(to) = low;
        else
          *reinterpret_cast<uint4*>(to) =
              make_uint4(low.x, low.y, pack_f16(s[i + 4], s[i + 5]), pack_f16(s[i + 6], s[i + 7]));
      }
    } else {
      arrive(shared.scores_empty);
      if (lane == 0) shared.moved[at.turn][warp] = 0;
    }
    barrier::publish_to_async_proxy();
    sync();  // P is there
  }

  __forceinline__ float2 heads_of(const float* of, int n) const {
    return *reinterpret_cast<const float2*>(&of[n * 8 + 2 * column]);
  }
  __forceinline__ void rescale(u32 turn) {
    const uint4* const moved = reinterpret_cast<const uint4*>(shared.moved[turn]);
    const uint4 a = moved[0], b = moved[1];
    if ((a.x | a.y | a.z | a.w | b.x | b.y | b.z | b.w) == 0) return;
#pragma unroll
    for (int n = 0; n < HEAD_TILES; ++n) {
      const float2 correction = heads_of(shared.corrections[turn], n);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        o[i][4 * n] *= correction.x;
        o[i][4 * n + 1] *= correction.y;
        o[i][4 * n + 2] *= correction.x;
        o[i][4 * n + 3] *= correction.y;
      }
    }
  }

  // Whether block i of this warpgroup's four has rope dimensions.
  __forceinline__ bool is_rope(int i) const {
    return i == 3 && group == 1;
  }
  // V of 64 dimensions and 32 keys, `half` of the tile, as it lies in shared memory. The bytes of
  // two keys that a transposed load brings together belong to dimensions 2 * row and 2 * row + 1,
  // which are taken as rows row and row + 8 of A; rope dimensions lie in order.
  struct Raw {
    u32 words[4], scales[4];
  };
  __forceinline__ void load_values(Raw& raw, int i, int half, int stage) const {
    const int slab = group * 4 + i;
    if (is_rope(i)) return load_rope(raw, half * 2, stage);
    ptx::load_matrices_transposed(
        raw.words, ptx::shared_address(&shared.rows[stage][half * 32 + lane][0]) + slab * 64 +
                       warp_in_group * 16);
    const u16* const factors = &shared.factors[stage][slab][half * 32 + 2 * column];
#pragma unroll
    for (int y = 0; y < 4; ++y)
      raw.scales[y] = *reinterpret_cast<const u32*>(factors + y * 8);
  }
  // Rope dimensions are twice as wide: 16 keys, and 1 / unit of those of this lane.
  __forceinline__ void load_rope(Raw& raw, int k_step, int stage) const {
    const int key = k_step * 16;
    ptx::load_matrices_transposed(
        raw.words, ptx::shared_address(&shared.rows[stage][key + lane % 8 + lane / 16 * 8][0]) +
                       MLA_QUANT_DIMS + warp_in_group * 32 + lane / 8 % 2 * 16);
#pragma unroll
    for (int z = 0; z < 2; ++z) {  // keys 2 * column, + 1 and 8 more
      const uint2 inverse =
          *reinterpret_cast<const uint2*>(&shared.inverses[stage][key + z * 8 + 2 * column]);
      raw.scales[2 * z] = inverse.x;
      raw.scales[2 * z + 1] = inverse.y;
    }
  }
  // A of one k-step: 16 keys, `y` of the half. Of rope dimensions the words of the next are asked
  // for then.
  __forceinline__ void convert_values(u32 (&x)[4], Raw& raw, int i, int half, int y,
                                      int stage) const {
    if (!is_rope(i)) {
      const u32 low = __byte_perm(raw.words[2 * y], 0, 0x3120);
      const u32 high = __byte_perm(raw.words[2 * y + 1], 0, 0x3120);
      x[0] = multiply_f16(fp8::to_f16(low), raw.scales[2 * y]);
      x[1] = multiply_f16(fp8::high_to_f16(low), raw.scales[2 * y]);
      x[2] = multiply_f16(fp8::to_f16(high), raw.scales[2 * y + 1]);
      x[3] = multiply_f16(fp8::high_to_f16(high), raw.scales[2 * y + 1]);
    } else {
#pragma unroll
      for (int z = 0; z < 4; ++z)
        x[z] = scaled_f16(raw.words[z], __uint_as_float(raw.scales[z / 2 * 2]),
                          __uint_as_float(raw.scales[z / 2 * 2 + 1]));
      if (y == 0) load_rope(raw, half * 2 + 1, stage);
    }
  }
  // O^T += V^T P^T of one tile, for this warpgroup's 256 dimensions. `raw` has those of the first
  // 32 keys.
  __forceinline__ void multiply_values(const Place& at, Raw& raw) {
    constexpr int K_STEPS = 16, AHEAD = 2;  // k-step k: block k / 4, half k / 2 % 2 of the keys
    const u64 weights = wgmma_f16::advance(p_blocks, at.turn * (TILE_HEADS * TILE_KV * 2));
    u32 a[AHEAD + 1][4];
    rescale(at.turn);
#pragma unroll
    for (int k = 0; k < AHEAD; ++k)
      convert_values(a[k], raw, 0, 0, k, at.stage);
    load_values(raw, 0, 1, at.stage);
#pragma unroll
    for (int k = 0; k < K_STEPS; ++k) {
      wgmma_f16::fence();
      wgmma_f16::multiply<TILE_HEADS>(o[k / 4], a[k % (AHEAD + 1)],
                                      wgmma_f16::advance(weights, k % 4 * TILE_HEADS * 32), 1);
      wgmma_f16::commit();
      const int next = k + AHEAD, step = next / 2;
      if (next >= K_STEPS) continue;
      if (k > 0) wgmma_f16::wait<1>();
      convert_values(a[next % (AHEAD + 1)], raw, next / 4, step % 2, next % 2, at.stage);
      if (next % 2 == 1 && step + 1 < K_STEPS / 2)
        load_values(raw, (step + 1) / 2, (step + 1) % 2, at.stage);
      if (next + 1 == K_STEPS) arrive(shared.empty[at.stage]);  // the last read of the tile
    }
    wgmma_f16::wait<0>();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      wgmma_f16::hold(o[i]);
  }
  __forceinline__ void take(const Place& at, bool first) {
    wait(shared.scores_full, at.turn);
    wait(shared.full[at.stage], at.round);  // for what the copies brought
    Raw raw;
    load_values(raw, 0, 0, at.stage);
    weigh(at, first);
    multiply_values(at, raw);
  }

  // The head's maximum and sum over all keys, once for all value warps.
  __forceinline__ void finish() {
#pragma unroll
    for (int lanes = WARP_HEADS; lanes < 32; lanes *= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    const auto [head, part] = share();
    if (part == 0 && head < TILE_HEADS) shared.totals[head] = make_float2(maximum - BOOST, sum);
  }

  // Hands every pair of results to put(offset, n, odd, first, second, distance): `offset` is that
  // of head n * 8 + 2 * column + odd in rows of MLA_DIMS elements, from the place of this thread's
  // first head and dimension; the pair lies `distance` dimensions apart.
  template <class Put>
  __forceinline__ void for_each_result(Put&& put) const {
#pragma unroll
    for (int n = 0; n < HEAD_TILES; ++n)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int offset = (n * 8 + odd) * MLA_DIMS + i * 64;
          const float first = o[i][4 * n + odd], second = o[i][4 * n + 2 + odd];
          if (is_rope(i))
            put(offset + row, n, odd, first, second, 8);
          else
            put(offset + 2 * row, n, odd, first, second, 1);
        }
  }
  __forceinline__ int first_place() const {
    return 2 * column * MLA_DIMS + group * 256 + warp_in_group * 16;
  }
  // The finished heads to the output, 32 bytes of a head from eight lanes. What O is multiplied by:
  // `factors` of the tile's heads.
  template <bool TURN_BACK>
  __forceinline__ void write(bf16* heads, const float* factors, const float2* rotations) const {
    bf16* const to = heads + first_place();
    // Of rope dimensions lanes have `row` and `row` + 8: neighbours swap, so that each has a pair.
    const bool upper = (row & 1) != 0;
    const int dim = upper ? row + 7 : row;
    const float2 rotation = rotations[(warp_in_group * 16 + dim) / 2];
    float2 factor = make_float2(0.0f, 0.0f);
    for_each_result([&](int offset, int n, int odd, float first, float second, int distance) {
      factor = heads_of(factors, n);
      const float f = odd == 0 ? factor.x : factor.y;
      first *= f;
      second *= f;
      if (distance == 1) {
        *reinterpret_cast<u32*>(to + offset) = pack_bf16(first, second);
      } else {
        const float got = __shfl_xor_sync(0xffffffffu, upper ? first : second, 4);
        u32 pair = upper ? pack_bf16(got, second) : pack_bf16(first, got);
        if (TURN_BACK) pair = turn_back(pair, rotation);
        *reinterpret_cast<u32*>(to + offset - row + dim) = pair;
      }
    });
  }
};

}  // namespace ingot::kernels::sparse_mla
