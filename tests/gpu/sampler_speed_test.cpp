#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernel_templates/sample_tokens.space.hpp"
#include "tests/support/device_data.hpp"
#include "tests/support/gpu.hpp"
#include "tuner/measure.hpp"

using namespace ingot;
using kernels::SampleTokens;

namespace {

struct Mode {
  const char* name;
  void (*set)(kernels::SampleRow&);
};
constexpr Mode kModes[] = {
    {"greedy", [](kernels::SampleRow& row) { row.temperature = 0; }},
    {"temperature 1", [](kernels::SampleRow&) {}},
    {"top_p 0.95", [](kernels::SampleRow& row) { row.top_p = 0.95; }},
    {"top_k 40, top_p 0.95", [](kernels::SampleRow& row) { row.top_k = 40, row.top_p = 0.95; }},
    {"temperature 1, 5 alternatives", [](kernels::SampleRow& row) { row.logprobs = 5; }},
};

}  // namespace

TEST_CASE("sample_tokens' variants by time, for each way to choose", "[gpu][.speed]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  const cu::DeviceLimits limits = cu::limits_of(context.device());
  for (const int rows : {1, 4, 16, 64, 256}) {
    const SampleTokens::Problem problem{.rows = rows};
    std::vector<float> values(static_cast<std::size_t>(rows) *
                              static_cast<std::size_t>(problem.vocabulary));
    std::normal_distribution<float> normal(0, 3);
    std::mt19937 random(5);
    std::ranges::generate(values, [&] { return normal(random); });
    const auto logits = test::to_device(context, stream, values);
    const auto results = test::to_device(
        context, stream, std::vector<kernels::SampleResult>(static_cast<std::size_t>(rows)));
    const auto counters =
        test::to_device(context, stream, std::vector<int>(2 * static_cast<std::size_t>(rows), 0));
    const auto exchange = cu::DeviceBuffer::allocate(
        context, static_cast<std::size_t>(kernels::sample_exchange_bytes(rows, 32)));
    const auto candidates = SampleTokens::space(problem, limits).candidates();
    std::vector<jit::Variant> variants;
    for (const auto& params : candidates)
      variants.push_back({std::string(SampleTokens::kStem), jit::param_values(params)});
    const auto loaded = test::load_variants(context, variants);
    for (const Mode& mode : kModes) {
      std::vector<kernels::SampleRow> device_rows;
      for (int row = 0; row < rows; ++row) {
        kernels::SampleRow one{};
        one.temperature = one.top_p = one.repetition_penalty = 1;
        one.seed = static_cast<kernels::u64>(row);
        one.logprobs = -1;
        mode.set(one);
        device_rows.push_back(one);
      }
      const auto placed = test::to_device(context, stream, device_rows);
      std::vector<std::pair<double, std::string>> lines;
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        const auto& c = candidates[i];
        const double us =
            measure(context, stream,
                    record_nodes(stream, 8,
                                 [&](int) {
                                   loaded[i].launch(
                                       stream, SampleTokens::launch_shape(problem, c),
                                       kernels::SampleTokensArgs{
                                           .logits = logits.as<float>(),
                                           .rows = placed.as<kernels::SampleRow>(),
                                           .bias_ids = nullptr,
                                           .bias_values = nullptr,
                                           .counts = nullptr,
                                           .adjusted = nullptr,
                                           .results = results.as<kernels::SampleResult>(),
                                           .counters = counters.as<kernels::u32>(),
                                           .exchange = exchange.as<kernels::u64>(),
                                           .vocabulary = problem.vocabulary,
                                           .stride = problem.vocabulary});
                                 }),
                    {.max_replays = 5})
                .median_us;
        CHECK(us > 0);
        lines.emplace_back(us, fmt::format("{} x {}{} {:.1f}", c.SPLIT, c.THREADS,
                                           i == 0 ? " (default)" : "", us));
      }
      std::ranges::sort(lines);
      fmt::print("{} rows, {}:", rows, mode.name);
      for (const auto& [us, line] : lines)
        fmt::print(" {};", line);
      fmt::print("\n");
    }
  }
}
