#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "kernel_templates/indexer_topk.space.hpp"
#include "tests/support/device_data.hpp"
#include "tests/support/gpu.hpp"
#include "tuner/measure.hpp"

using namespace ingot;
using kernels::IndexerTopk;

namespace {

constexpr std::size_t kScores = std::size_t{64} << 20;  // 256 MB: five times an H200's L2
constexpr int kLeastNodes = 64, kMostNodes = 1024;

/// Arguments of launches that read other scores each; the page table is one for all.
struct Rows {
  const cu::Context& context;
  const cu::Stream& stream;
  IndexerTopk::Problem problem;
  cu::DeviceBuffer counts, sequences, page_table, indices, selected, nans, keys, entries, arrived;

  Rows(const cu::Context& on, const cu::Stream& at, const IndexerTopk::Problem& of)
      : context(on), stream(at), problem(of) {
    const auto rows = static_cast<std::size_t>(problem.rows);
    std::vector<int> order(rows), pages(rows * static_cast<std::size_t>(page_stride()));
    std::iota(order.begin(), order.end(), 0);
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(7));
    counts = test::to_device(on, at, std::vector<int>(rows, problem.entries));
    sequences = test::to_device(on, at, order);
    page_table = test::to_device(on, at, pages);
    const std::vector<int> zeros(rows * 8 * static_cast<std::size_t>(problem.topk), 0);
    for (cu::DeviceBuffer* one : {&indices, &selected, &nans, &arrived})
      *one = test::to_device(on, at, zeros);
    // Of as many chunks as are joined at most.
    const std::vector<int> workspace(rows * 16 * static_cast<std::size_t>(problem.topk), 0);
    keys = test::to_device(on, at, workspace);
    entries = test::to_device(on, at, workspace);
  }
  int page_stride() const {
    return (problem.entries + problem.page_entries - 1) / problem.page_entries;
  }
  std::size_t floats() const {
    return static_cast<std::size_t>(problem.rows) * static_cast<std::size_t>(problem.entries);
  }
  int nodes() const {
    return static_cast<int>(std::clamp<std::size_t>(kScores / floats(), kLeastNodes, kMostNodes));
  }
  double measured_us(const jit::Kernel& kernel, const IndexerTopk::Params& params,
                     const cu::DeviceBuffer& scores, bool early) const {
    cu::LaunchShape shape = IndexerTopk::launch_shape(problem, params);
    shape.programmatic = early;
    const auto queue = [&](int node) {
      const std::size_t set = static_cast<std::size_t>(node) % (kScores / floats());
      kernel.launch(stream, shape,
                    kernels::IndexerTopkArgs{.scores = scores.as<float>() + set * floats(),
                                             .counts = counts.as<int>(),
                                             .sequences = sequences.as<int>(),
                                             .page_table = page_table.as<int>(),
                                             .indices = indices.as<int>(),
                                             .selected_counts = selected.as<int>(),
                                             .nan_counts = nans.as<kernels::u32>(),
                                             .candidate_keys = keys.as<kernels::u32>(),
                                             .candidate_indices = entries.as<int>(),
                                             .arrived = arrived.as<kernels::u32>(),
                                             .score_stride = problem.entries,
                                             .page_stride = page_stride()});
    };
    return measure(context, stream, record_nodes(stream, nodes(), queue), {.max_replays = 10})
        .median_us;
  }
};

}  // namespace

TEST_CASE("indexer_topk's variants by time, scores cold, in graphs", "[gpu][.speed]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  const cu::DeviceLimits limits = cu::limits_of(context.device());
  std::vector<float> values(kScores / 16);
  std::normal_distribution<float> normal;
  std::mt19937 random(3);
  std::generate(values.begin(), values.end(), [&] { return normal(random); });
  std::vector<float> all;
  for (int i = 0; i < 16; ++i)
    all.insert(all.end(), values.begin(), values.end());
  const auto scores = test::to_device(context, stream, all);
  for (const auto& [rows, entries] : {std::pair{1, 2048},
                                      {64, 2048},
                                      {1, 8192},
                                      {1, 32768},
                                      {16, 32768},
                                      {64, 32768},
                                      {1, 131072},
                                      {1, 262144},
                                      {16, 262144},
                                      {64, 262144}}) {
    const Rows one(context, stream, {.rows = rows, .entries = entries});
    const auto candidates = IndexerTopk::space(one.problem, limits).candidates();
    std::vector<jit::Variant> variants;
    for (const auto& params : candidates)
      variants.push_back({std::string(IndexerTopk::kStem), jit::param_values(params)});
    const auto loaded = test::load_variants(context, variants);
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      loaded[i].prefer_shared_memory(context);
      const auto& c = candidates[i];
      const double plain = one.measured_us(loaded[i], c, scores, false);
      const double early = one.measured_us(loaded[i], c, scores, true);
      CHECK(plain > 0);
      lines.push_back(fmt::format(
          "{:7.2f} us plain, {:7.2f} early: {:4} threads, {} vectors, {}{}", plain, early,
          c.THREADS, c.VECTORS,
          c.CLUSTER > 1 ? fmt::format("cluster of {}", c.CLUSTER) : std::string("no cluster"),
          i == 0 ? " (default)" : ""));
    }
    std::sort(lines.begin(), lines.end());
    fmt::print("indexer_topk {} x {}:\n", rows, entries);
    for (const std::string& line : lines)
      fmt::print("  {}\n", line);
  }
}
