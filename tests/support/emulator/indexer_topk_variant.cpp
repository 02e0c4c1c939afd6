// One variant of indexer_topk on the emulator. Compiled once per variant with VARIANT (its name)
// and OVERRIDES, and with `kernels` and the kernel's name renamed, so that variants live side by
// side.
#include <algorithm>
#include <stdexcept>

#include "tests/support/emulator/cuda.hpp"
#include "tests/support/emulator/indexer_topk_variants.hpp"
#include "tests/support/emulator/overrides.hpp"

#include "indexer_topk.params.def"
#undef PARAM
#include "indexer_topk.cuh"

#define STRING2(x) #x
#define STRING(x) STRING2(x)

namespace ingot::test::emulator {
namespace {

TopkResult run_variant(const TopkInputs& in, int entries, std::uint64_t seed) {
  const int chunks = CLUSTER > 1 ? CLUSTER : kernels::indexer_topk_chunks(entries, kernels::CHUNK);
  const auto rows = static_cast<std::size_t>(in.rows);
  std::vector<std::uint32_t> keys(rows * static_cast<std::size_t>(chunks * TOPK), 0xffffffffu);
  std::vector<int> candidates(keys.size(), -77);
  std::vector<std::uint32_t> arrived(rows, 0);
  TopkResult result{std::vector<int>(rows * static_cast<std::size_t>(TOPK), -77),
                    std::vector<int>(rows, -77), std::vector<std::uint32_t>(rows, 5)};
  kernels::IndexerTopkArgs args{};
  args.scores = in.scores.data();
  args.counts = in.counts.data();
  args.sequences = in.sequences.data();
  args.page_table = in.page_table.data();
  args.indices = result.indices.data();
  args.selected_counts = result.selected_counts.data();
  args.nan_counts = result.nan_counts.data();
  args.candidate_keys = keys.data();
  args.candidate_indices = candidates.data();
  args.arrived = arrived.data();
  args.score_stride = in.score_stride;
  args.page_stride = in.page_stride;
  const Launch launch{
      {static_cast<unsigned>(chunks), static_cast<unsigned>(in.rows)},
      {static_cast<unsigned>(THREADS)},
      CLUSTER > 1 ? sizeof(kernels::topk_cluster::Storage) : sizeof(kernels::SharedStorage),
      seed,
      {static_cast<unsigned>(CLUSTER)}};
  emulator::run(launch, [&] { kernels::indexer_topk(args); });
  if (!std::all_of(arrived.begin(), arrived.end(), [](std::uint32_t n) { return n == 0; }))
    throw std::runtime_error("the counters are not as they were before the launch");
  for (std::uint32_t& n : result.nan_counts)
    n -= 5;  // what was there before stays in the sum
  return result;
}

}  // namespace

IndexerTopkVariant VARIANT() {
  return {STRING(VARIANT), TOPK, kernels::CHUNK, CLUSTER, PAGE_ENTRIES, MAP_PAGES, run_variant};
}

}  // namespace ingot::test::emulator
