#include "kernel_templates/indexer_scores.space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>

#include "kernel_templates/indexer_scores_sm90.space.hpp"
#include "tests/support/device_data.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/indexer_scores.hpp"
#include "tests/support/skip.hpp"

using namespace ingot;
using kernels::IndexerScoresProblem;

namespace {

constexpr float kPoison = -77.0F;
constexpr double kF16Error = 2e-6;
// A head's product is rounded to bf16; Hopper's tensor cores keep about 14 bits of it anyway.
constexpr double kE4m3Error = 2e-3;

struct Device {
  const cu::Context& context;
  const cu::Stream& stream;
  const test::IndexScoreInputs& in;
  cu::DeviceBuffer q, q_scales, weights, pool, page_table, sequences, counts;

  Device(const cu::Context& on, const cu::Stream& at, const test::IndexScoreInputs& inputs)
      : context(on), stream(at), in(inputs) {
    q = test::to_device(on, at, in.q);
    q_scales = test::to_device(on, at, in.q_scales);
    weights = test::to_device(on, at, in.weights);
    pool = test::to_device(on, at, in.pool);
    page_table = test::to_device(on, at, in.page_table);
    sequences = test::to_device(on, at, in.sequences);
    counts = test::to_device(on, at, in.counts);
  }

  std::vector<float> run(const jit::Kernel& kernel, const cu::LaunchShape& shape,
                         std::size_t stride, int all_taken) const {
    const auto scores = test::to_device(
        context, stream, std::vector<float>(static_cast<std::size_t>(in.rows) * stride, kPoison));
    kernel.launch(stream, shape,
                  kernels::IndexerScoresArgs{.q = q.as<kernels::u8>(),
                                             .q_scales = q_scales.as<kernels::u8>(),
                                             .weights = weights.as<kernels::bf16>(),
                                             .pool = pool.as<kernels::u8>(),
                                             .page_table = page_table.as<int>(),
                                             .sequences = sequences.as<int>(),
                                             .counts = counts.as<int>(),
                                             .scores = scores.as<float>(),
                                             .score_stride = static_cast<long long>(stride),
                                             .page_stride = in.page_stride,
                                             .rows = in.rows,
                                             .all_taken = all_taken});
    return test::to_host<float>(stream, scores);
  }
};

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values)
    bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

/// @param most  the longest row
template <class Family>
void check(const std::vector<IndexerScoresProblem>& problems, int most, double tolerance) {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  const cu::DeviceLimits limits = cu::limits_of(context.device());
  if (!Family::runs_on(limits) && test::skip(std::string(Family::kStem) + " needs another card"))
    return;
  double worst = 0;
  int variants = 0;
  for (IndexerScoresProblem problem : problems) {
    const test::IndexLayout layout{problem.heads, problem.page_entries, problem.page_bytes};
    const int together = problem.rows_together;
    std::vector<int> counts;  // rows of a sequence differ in length
    for (const int keys : {most, 0, 1, 700, most / 3, 64, 513, 2049})
      for (int r = 0; r < together; ++r)
        counts.push_back(std::min(keys == 0 ? 0 : keys + r, most));
    problem.rows = static_cast<int>(counts.size());
    const auto inputs = test::index_score_inputs(layout, counts, together, 17);
    const auto stride = static_cast<std::size_t>(most + 24);
    const Device device(context, stream, inputs);
    const auto all = Family::space(problem, limits).extremes();
    std::vector<jit::Variant> erased;
    for (const auto& params : all)
      erased.push_back({std::string(Family::kStem), jit::param_values(params)});
    const auto loaded = test::load_variants(context, erased);
    std::vector<std::uint32_t> first;
    for (std::size_t v = 0; v < all.size(); ++v, ++variants) {
      const auto shape = Family::launch_shape(problem, all[v], limits);
      for (const int all_taken : {0, 512}) {
        CAPTURE(jit::describe(erased[v]), all_taken);
        const auto got = device.run(loaded[v], shape, stride, all_taken);
        const double error = test::index_scores_error(inputs, all_taken, got, stride, kPoison);
        REQUIRE(error <= tolerance);
        worst = std::max(worst, error);
        REQUIRE(bits_of(device.run(loaded[v], shape, stride, all_taken)) == bits_of(got));
        // Neither tiles nor the deal of keys to blocks show in the bits.
        if (all_taken > 0) continue;
        if (first.empty()) first = bits_of(got);
        REQUIRE(bits_of(got) == first);
      }
    }
  }
  fmt::print("{}: {} variants, worst error relative to the magnitudes {:.2e}\n", Family::kStem,
             variants, worst);
}

/// Keys in the last pages of a pool beyond 2^31 bytes.
template <class Family>
void check_large_pool(double tolerance) {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  const cu::DeviceLimits limits = cu::limits_of(context.device());
  if (!Family::runs_on(limits) && test::skip(std::string(Family::kStem) + " needs another card"))
    return;
  const IndexerScoresProblem problem;
  const auto page_bytes = static_cast<std::size_t>(problem.page_bytes);
  constexpr std::size_t kPages = 520'000;
  const std::size_t bytes = kPages * page_bytes;
  REQUIRE(bytes > (std::size_t{1} << 31));
  if (context.free_bytes() < bytes + (std::size_t{1} << 30) &&
      test::skip("not enough free device memory for a pool of 2.3 GB"))
    return;
  auto inputs = test::index_score_inputs({}, {1000}, 1, 19);
  auto moved = inputs;
  for (int& page : moved.page_table)
    page += static_cast<int>(kPages - inputs.page_table.size());
  Device device(context, stream, moved);
  device.pool = cu::DeviceBuffer::allocate(context, bytes);
  device.pool.copy_from_host(stream, std::as_bytes(std::span(inputs.pool)),
                             bytes - inputs.pool.size());
  stream.synchronize();
  const auto params = Family::space(problem, limits).default_candidate();
  const auto kernel =
      test::load_variant(context, {std::string(Family::kStem), jit::param_values(params)});
  const auto got = device.run(kernel, Family::launch_shape(problem, params, limits), 1024, 0);
  REQUIRE(test::index_scores_error(inputs, 0, got, 1024, kPoison) <= tolerance);
}

}  // namespace

TEST_CASE("indexer_scores agrees with the reference for rows of every length", "[gpu][families]") {
  check<kernels::IndexerScores>(kernels::IndexerScores::sample_problems(), 20'000, kF16Error);
}
TEST_CASE("indexer_scores on wgmma agrees with the reference for rows of every length",
          "[gpu][families]") {
  check<kernels::IndexerScoresSm90>(kernels::IndexerScoresSm90::sample_problems(), 20'000,
                                    kE4m3Error);
}
TEST_CASE("indexer_scores stays in bounds", "[gpu][families][sanitize]") {
  check<kernels::IndexerScores>({{.page_entries = 32, .page_bytes = 2176}}, 2051, kF16Error);
}
TEST_CASE("indexer_scores on wgmma stays in bounds", "[gpu][families][sanitize]") {
  check<kernels::IndexerScoresSm90>({{.page_entries = 128, .page_bytes = 8704}}, 2051, kE4m3Error);
}
TEST_CASE("indexer_scores reads the last page of a pool beyond 2 GiB", "[gpu][families]") {
  check_large_pool<kernels::IndexerScores>(kF16Error);
}
TEST_CASE("indexer_scores on wgmma reads the last page of a pool beyond 2 GiB", "[gpu][families]") {
  check_large_pool<kernels::IndexerScoresSm90>(kE4m3Error);
}
