// One variant of indexer_queries on the emulator. Compiled once per variant with VARIANT (its name)
// and OVERRIDES, and with `kernels` and the kernel's name renamed, so that variants live side by
// side.
#include "tests/support/emulator/cuda.hpp"
#include "tests/support/emulator/indexer_queries_variants.hpp"
#include "tests/support/emulator/overrides.hpp"

#include "indexer_queries.params.def"
#undef PARAM
#include "indexer_queries.cuh"

#define STRING2(x) #x
#define STRING(x) STRING2(x)

namespace ingot::test::emulator {
namespace {

IndexQueries run_variant(const IndexQueryInputs& in, std::uint64_t seed) {
  const auto heads = static_cast<std::size_t>(in.rows * HEADS);
  IndexQueries out{std::vector<std::uint8_t>(heads * 64, 0xee),
                   std::vector<std::uint8_t>(heads * 4, 0xee),
                   std::vector<std::uint16_t>(heads, 0xeeee)};
  kernels::IndexerQueriesArgs args{};
  args.q = reinterpret_cast<const kernels::bf16*>(in.q.data());
  args.projected = reinterpret_cast<const kernels::bf16*>(in.projected.data());
  args.frequencies = in.frequencies.data();
  args.positions = in.positions.data();
  args.codes = out.codes.data();
  args.scales = out.scales.data();
  args.weights = reinterpret_cast<kernels::bf16*>(out.weights.data());
  args.q_stride = in.q_stride;
  args.weight_scale = in.weight_scale;
  const Launch launch{
      {static_cast<unsigned>(HEADS / kernels::BLOCK_HEADS), static_cast<unsigned>(in.rows)},
      {static_cast<unsigned>(kernels::THREADS)},
      16,
      seed};
  emulator::run(launch, [&] { kernels::indexer_queries(args); });
  return out;
}

}  // namespace

IndexerQueriesVariant VARIANT() {
  return {STRING(VARIANT), HEADS, run_variant};
}

}  // namespace ingot::test::emulator
