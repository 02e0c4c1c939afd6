// One variant of a sparse MLA decode family on the emulator. Compiled once per variant with
//   VARIANT      its name
//   FAMILY       0 sparse_mla_decode, 1 sparse_mla_decode_sm90, 2 sparse_mla_decode_simt,
//                3 sparse_mla_prefill_sm90, 4 sparse_mla_prefill
//   OVERRIDES    {"PARAM", value}, … for parameters that differ from the default
// and with `kernels` and the kernel's name renamed, so that variants live side by side.
#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "common/kv_layout.cuh"
#include "tests/support/emulator/cuda.hpp"
#include "tests/support/emulator/sparse_mla_variants.hpp"

namespace {

struct Override {
  std::string_view name;
  int value;
};
constexpr Override kOverrides[] = {OVERRIDES, {"", 0}};

constexpr int value_of(std::string_view name, int value) {
  for (const Override& o : kOverrides)
    if (o.name == name) value = o.value;
  return value;
}

}  // namespace

#define INGOT_PARAMS_GENERATED
#define PARAM(type, name, value, doc) constexpr type name = value_of(#name, value);
#if FAMILY == 0
#include "sparse_mla_decode.params.def"
#elif FAMILY == 1
#include "sparse_mla_decode_sm90.params.def"
#elif FAMILY == 3
#include "sparse_mla_prefill_sm90.params.def"
#elif FAMILY == 4
#include "sparse_mla_prefill.params.def"
#else
#include "sparse_mla_decode_simt.params.def"
#endif
#undef PARAM

#if FAMILY == 0
#include "sparse_mla_decode.cuh"
#elif FAMILY == 1
#include "sparse_mla_decode_sm90.cuh"
#elif FAMILY == 3
#include "sparse_mla_prefill_sm90.cuh"
#elif FAMILY == 4
#include "sparse_mla_prefill.cuh"
#else
#include "sparse_mla_decode_simt.cuh"
#endif

#define STRING2(x) #x
#define STRING(x) STRING2(x)

namespace ingot::test::emulator {

namespace {

using kernels::SparseMlaDecodeArgs;

#if FAMILY == 2
constexpr int TILE_HEADS = 1, NSPLIT = 1;
constexpr int kPieces = 1;
#elif FAMILY == 3
constexpr int NSPLIT = 1;
constexpr int kPieces = 1;
#else
constexpr int kPieces = kernels::PIECES;
#endif

std::vector<std::uint16_t> run_variant(const SparseMlaVariant& variant, const SparseMlaInputs& in,
                                       std::uint64_t seed) {
  std::vector<std::uint16_t> out(in.q.size(), 0xffff);
  std::vector<std::uint32_t> exchange_values(
      static_cast<std::size_t>(
          kernels::sparse_mla_exchange_value_bytes(in.rows, in.heads, NSPLIT, kPieces) / 4),
      0xffffffffu);
  std::vector<std::uint32_t> exchange_sums(
      static_cast<std::size_t>(
          kernels::sparse_mla_exchange_sum_bytes(in.rows, in.heads, NSPLIT, kPieces) / 4),
      0xffffffffu);
  SparseMlaDecodeArgs args{};
  args.q = reinterpret_cast<const kernels::bf16*>(in.q.data());
  args.window_pool = in.window_pool.data();
  args.selected_pool = in.selected_pool.data();
  args.window_indices = in.window_indices.data();
  args.selected_indices = in.selected_indices.data();
  args.window_counts = in.window_counts.data();
  args.selected_counts = in.selected_counts.data();
  args.sink = in.sink.data();
  args.positions = in.positions.data();
  args.frequencies = in.frequencies.data();
  args.out = reinterpret_cast<kernels::bf16*>(out.data());
  args.exchange_values = reinterpret_cast<float*>(exchange_values.data());
  args.exchange_sums = reinterpret_cast<float*>(exchange_sums.data());
  args.rows = in.rows;
  args.heads = in.heads;
  args.window_slots = in.window_slots;
  args.selected_slots = in.selected_slots;
#if FAMILY == 2
  const Dim3 grid{static_cast<unsigned>(in.heads), static_cast<unsigned>(in.rows)};
#elif FAMILY == 3
  const Dim3 grid{2};  // fewer than items, so that each block has several
#elif FAMILY == 4
  const Dim3 grid{static_cast<unsigned>(in.heads / TILE_HEADS), static_cast<unsigned>(in.rows)};
#else
  const Dim3 grid{static_cast<unsigned>(NSPLIT), static_cast<unsigned>(in.heads / TILE_HEADS),
                  static_cast<unsigned>(in.rows)};
#endif
  const Launch launch{grid, {static_cast<unsigned>(variant.threads)}, variant.smem_bytes, seed};
#if FAMILY == 0
  emulator::run(launch, [&] { kernels::sparse_mla_decode(args); });
#elif FAMILY == 1
  emulator::run(launch, [&] { kernels::sparse_mla_decode_sm90(args); });
#elif FAMILY == 3
  emulator::run(launch, [&] { kernels::sparse_mla_prefill_sm90(args); });
#elif FAMILY == 4
  emulator::run(launch, [&] { kernels::sparse_mla_prefill(args); });
#else
  emulator::run(launch, [&] { kernels::sparse_mla_decode_simt(args); });
#endif
  const auto is_empty = [](std::uint32_t word) { return word == 0xffffffffu; };
  if (!std::all_of(exchange_values.begin(), exchange_values.end(), is_empty) ||
      !std::all_of(exchange_sums.begin(), exchange_sums.end(), is_empty))
    throw std::runtime_error("the exchange buffers are not as they were before the launch");
  return out;
}

}  // namespace

SparseMlaVariant VARIANT() {
  SparseMlaVariant v;
  v.name = STRING(VARIANT);
  v.tile_heads = TILE_HEADS;
  v.nsplit = NSPLIT;
  v.pieces = kPieces;
  v.threads = kernels::THREADS;
#if FAMILY == 0 || FAMILY == 4
  v.smem_bytes = kernels::SMEM_BYTES;
#elif FAMILY == 1
  v.smem_bytes =
      kernels::sparse_mla_decode_sm90_smem_bytes(TILE_HEADS, STAGES, NSPLIT, SCALES_BESIDE);
#elif FAMILY == 3
  v.smem_bytes = kernels::SMEM_BYTES;
  v.rows = 5;
#else
  v.smem_bytes = kernels::sparse_mla_decode_simt_smem_bytes(WARPS);
#endif
  v.window_layout = {WINDOW_PAGE_ENTRIES, WINDOW_PAGE_BYTES, ENTRY_STRIDE, SCALES_BESIDE};
  v.selected_layout = {SELECTED_PAGE_ENTRIES, SELECTED_PAGE_BYTES, ENTRY_STRIDE, SCALES_BESIDE};
  v.has_sink = HAS_SINK;
  v.inverse_rope = INVERSE_ROPE;
  v.run = run_variant;
  return v;
}

}  // namespace ingot::test::emulator
