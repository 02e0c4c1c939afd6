// One variant of indexer_scores on the emulator. Compiled once per variant with VARIANT (its name)
// and OVERRIDES, and with `kernels` and the kernel's name renamed, so that variants live side by
// side.
#include "tests/support/emulator/cuda.hpp"
#include "tests/support/emulator/indexer_scores_variants.hpp"
#include "tests/support/emulator/overrides.hpp"

#ifdef INDEXER_SCORES_SM90
#include "indexer_scores_sm90.params.def"
#undef PARAM
#include "indexer_scores_sm90.cuh"
#define KERNEL indexer_scores_sm90
// What a head contributes is rounded to bf16.
#define TOLERANCE 2e-3
#else
#include "indexer_scores.params.def"
#undef PARAM
#include "indexer_scores.cuh"
#define KERNEL indexer_scores
#define TOLERANCE 2e-6
#endif

#define STRING2(x) #x
#define STRING(x) STRING2(x)

namespace ingot::test::emulator {
namespace {

std::vector<float> run_variant(const IndexScoreInputs& in, int all_taken, std::size_t stride,
                               unsigned blocks, std::uint64_t seed) {
  std::vector<float> scores(static_cast<std::size_t>(in.rows) * stride, -77.0F);
  kernels::IndexerScoresArgs args{};
  args.q = in.q.data();
  args.q_scales = in.q_scales.data();
  args.weights = reinterpret_cast<const kernels::bf16*>(in.weights.data());
  args.pool = in.pool.data();
  args.page_table = in.page_table.data();
  args.sequences = in.sequences.data();
  args.counts = in.counts.data();
  args.scores = scores.data();
  args.score_stride = static_cast<long long>(stride);
  args.page_stride = in.page_stride;
  args.rows = in.rows;
  args.all_taken = all_taken;
  const Launch launch{
      {blocks}, {static_cast<unsigned>(kernels::THREADS)}, sizeof(kernels::SharedStorage), seed};
  emulator::run(launch, [&] { kernels::KERNEL(args); });
  return scores;
}

}  // namespace

IndexerScoresVariant VARIANT() {
  return {STRING(VARIANT), {HEADS, PAGE_ENTRIES, PAGE_BYTES}, ROWS, kernels::TILE, TOLERANCE,
          run_variant};
}

}  // namespace ingot::test::emulator
