#include "kernel_templates/indexer_topk.space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "tests/support/device_data.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/indexer_topk.hpp"

using namespace ingot;
using kernels::IndexerTopk;

namespace {

constexpr int kPoison = -77;
constexpr std::uint32_t kNansBefore = 5;

/// Inputs on the device, and outputs that are poisoned before each launch.
struct Device {
  const cu::Context& context;
  const cu::Stream& stream;
  const test::TopkInputs& in;
  const IndexerTopk::Problem& problem;
  cu::DeviceBuffer scores, counts, sequences, page_table;

  Device(const cu::Context& on, const cu::Stream& at, const test::TopkInputs& inputs,
         const IndexerTopk::Problem& of)
      : context(on), stream(at), in(inputs), problem(of) {
    scores = test::to_device(on, at, in.scores);
    counts = test::to_device(on, at, in.counts);
    sequences = test::to_device(on, at, in.sequences);
    page_table = test::to_device(on, at, in.page_table);
  }

  /// Two launches, one behind the other, on the same workspace.
  std::vector<test::TopkResult> run(const jit::Kernel& kernel,
                                    const IndexerTopk::Params& params) const {
    const auto rows = static_cast<std::size_t>(in.rows);
    const std::size_t candidates =
        std::max<std::size_t>(IndexerTopk::candidate_bytes(problem, params) / sizeof(int), 1);
    const auto keys = test::to_device(context, stream, std::vector<int>(candidates, kPoison));
    const auto entries = test::to_device(context, stream, std::vector<int>(candidates, kPoison));
    const auto arrived = test::to_device(context, stream, std::vector<int>(rows, 0));
    std::vector<test::TopkResult> results;
    for (int turn = 0; turn < 2; ++turn) {
      const auto indices = test::to_device(
          context, stream, std::vector<int>(rows * static_cast<std::size_t>(params.TOPK), kPoison));
      const auto selected = test::to_device(context, stream, std::vector<int>(rows, kPoison));
      const auto nans =
          test::to_device(context, stream, std::vector<std::uint32_t>(rows, kNansBefore));
      kernel.launch(stream, IndexerTopk::launch_shape(problem, params),
                    kernels::IndexerTopkArgs{.scores = scores.as<float>(),
                                             .counts = counts.as<int>(),
                                             .sequences = sequences.as<int>(),
                                             .page_table = page_table.as<int>(),
                                             .indices = indices.as<int>(),
                                             .selected_counts = selected.as<int>(),
                                             .nan_counts = nans.as<kernels::u32>(),
                                             .candidate_keys = keys.as<kernels::u32>(),
                                             .candidate_indices = entries.as<int>(),
                                             .arrived = arrived.as<kernels::u32>(),
                                             .score_stride = in.score_stride,
                                             .page_stride = in.page_stride});
      results.push_back({test::to_host<int>(stream, indices), test::to_host<int>(stream, selected),
                         test::to_host<std::uint32_t>(stream, nans)});
      for (std::uint32_t& n : results.back().nan_counts)
        n -= kNansBefore;
    }
    const auto left = test::to_host<int>(stream, arrived);
    CHECK(std::all_of(left.begin(), left.end(), [](int n) { return n == 0; }));
    return results;
  }
};

/// Cases of a variant's chunk with what is right of them.
struct Cases {
  std::vector<test::TopkCase> cases;
  std::vector<test::TopkResult> expected;
};
Cases cases_of(const IndexerTopk::Problem& problem, int chunk) {
  Cases made{test::topk_cases(problem.entries, problem.topk, chunk, problem.page_entries), {}};
  for (const test::TopkCase& one : made.cases)
    made.expected.push_back(test::topk_reference(one.inputs, problem.topk, problem.map_pages));
  return made;
}

/// Of each problem the variants that `choose` takes.
void check(const std::vector<IndexerTopk::Problem>& problems,
           std::vector<IndexerTopk::Params> (*choose)(const Space<IndexerTopk::Params>&)) {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  const cu::DeviceLimits limits = cu::limits_of(context.device());
  int variants = 0, in_clusters = 0;
  for (IndexerTopk::Problem problem : problems) {
    const auto all = choose(IndexerTopk::space(problem, limits));
    std::vector<jit::Variant> erased;
    for (const auto& params : all)
      erased.push_back({std::string(IndexerTopk::kStem), jit::param_values(params)});
    const auto loaded = test::load_variants(context, erased);
    std::map<int, Cases> by_chunk;
    for (std::size_t v = 0; v < all.size(); ++v, ++variants) {
      const int chunk = IndexerTopk::chunk(all[v]);
      if (!by_chunk.contains(chunk)) by_chunk[chunk] = cases_of(problem, chunk);
      const Cases& made = by_chunk[chunk];
      in_clusters += IndexerTopk::in_clusters(all[v]) ? 1 : 0;
      for (std::size_t i = 0; i < made.cases.size(); ++i) {
        const test::TopkInputs& inputs = made.cases[i].inputs;
        CAPTURE(jit::describe(erased[v]), problem.entries, made.cases[i].name);
        problem.rows = inputs.rows;
        const Device device(context, stream, inputs, problem);
        for (const test::TopkResult& got : device.run(loaded[v], all[v])) {
          REQUIRE(got.selected_counts == made.expected[i].selected_counts);
          REQUIRE(got.indices == made.expected[i].indices);
          REQUIRE(got.nan_counts == made.expected[i].nan_counts);
        }
      }
    }
  }
  fmt::print("indexer_topk: {} variants select exactly, {} of them in clusters\n", variants,
             in_clusters);
}

std::vector<IndexerTopk::Params> extremes(const Space<IndexerTopk::Params>& space) {
  return space.extremes();
}
std::vector<IndexerTopk::Params> clusters(const Space<IndexerTopk::Params>& space) {
  auto all = space.candidates();
  std::erase_if(all, [](const auto& params) { return !IndexerTopk::in_clusters(params); });
  return all;
}
std::vector<IndexerTopk::Params> one_cluster(const Space<IndexerTopk::Params>& space) {
  auto all = clusters(space);
  all.resize(std::min<std::size_t>(all.size(), 1));
  return all;
}

const std::vector<IndexerTopk::Problem> kSmall{{.entries = 5011},
                                               {.entries = 517, .topk = 64, .map_pages = false}};

}  // namespace

TEST_CASE("indexer_topk selects exactly from rows of every length", "[gpu][families]") {
  check({{.entries = 2048},
         {.entries = 32768, .page_entries = 2},
         {.entries = 262144},
         {.entries = 40000, .topk = 1024, .map_pages = false}},
        extremes);
}

TEST_CASE("the blocks of a cluster select exactly from rows of every length", "[gpu][families]") {
  check({{.entries = 2048},
         {.entries = 8192, .map_pages = false},
         {.entries = 32768},
         {.entries = 70000, .page_entries = 2},
         {.entries = 262144},
         {.entries = 40000, .topk = 1024}},
        clusters);
}

TEST_CASE("indexer_topk stays in bounds", "[gpu][families][sanitize]") {
  check(kSmall, extremes);
}
TEST_CASE("the blocks of a cluster stay in bounds", "[gpu][families][sanitize]") {
  check(kSmall, one_cluster);
}
