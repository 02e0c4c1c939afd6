#include "kernel_templates/compress_kv.space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/support/compress_kv.hpp"
#include "tests/support/device_data.hpp"
#include "tests/support/gpu.hpp"

using namespace ingot;
using kernels::CompressKv;

namespace {

test::CompressLayout layout_of(const CompressKv::Problem& p) {
  return {p.ratio,      p.index_keys,   p.state_rows,   p.page_entries,
          p.page_bytes, p.entry_stride, p.scales_beside};
}

/// One kernel on one device, as the tests of chunking launch it.
struct Launcher {
  const cu::Context& context;
  const cu::Stream& stream;
  const jit::Kernel& kernel;
  CompressKv::Problem problem;
  CompressKv::Params params;

  void operator()(const test::CompressData& data, const test::CompressStep& step,
                  test::CompressMemory& memory) const {
    if (step.positions.empty()) return;
    const auto device = [&](const auto& values) {
      return test::to_device(context, stream, values);
    };
    const auto k = device(step.k), s = device(step.s), ape = device(data.ape),
               norm = device(data.norm), frequencies = device(data.frequencies),
               row_starts = device(step.row_starts), positions = device(step.positions),
               slots = device(step.slots), page_table = device(data.page_table),
               pool = device(memory.pool), state = device(memory.state);
    CompressKv::Problem at = problem;
    at.sequences = step.sequences;
    at.tokens = step.most_tokens;
    kernel.launch(stream, CompressKv::launch_shape(at, params),
                  kernels::CompressKvArgs{.k = k.as<float>(),
                                          .s = s.as<float>(),
                                          .ape = ape.as<float>(),
                                          .norm_weight = norm.as<kernels::bf16>(),
                                          .frequencies = frequencies.as<float>(),
                                          .row_starts = row_starts.as<int>(),
                                          .positions = positions.as<int>(),
                                          .slots = slots.as<int>(),
                                          .page_table = page_table.as<int>(),
                                          .pool = pool.as<kernels::u8>(),
                                          .state = state.as<float>(),
                                          .row_stride = step.row_stride,
                                          .page_stride = data.page_stride,
                                          .epsilon = 1e-6F});
    memory.pool = test::to_host<std::uint8_t>(stream, pool);
    memory.state = test::to_host<float>(stream, state);
  }
};

/// Variants of the sample problems, at most `most` of each, on sequences of these lengths.
void check(const std::vector<int>& csa_lengths, const std::vector<int>& hca_lengths,
           std::size_t most = SIZE_MAX) {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  const cu::DeviceLimits limits = cu::limits_of(context.device());
  int variants = 0;
  double worst = 0;
  for (const auto& problem : CompressKv::sample_problems()) {
    auto all = CompressKv::space(problem, limits).candidates();
    if (all.size() > most) all.resize(most);
    std::vector<jit::Variant> erased;
    for (const auto& params : all)
      erased.push_back({std::string(CompressKv::kStem), jit::param_values(params)});
    const auto loaded = test::load_variants(context, erased);
    const test::CompressData data(layout_of(problem),
                                  problem.ratio == 4 ? csa_lengths : hca_lengths, 5);
    for (std::size_t v = 0; v < all.size(); ++v, ++variants) {
      CAPTURE(jit::describe(erased[v]));
      const Launcher launch{context, stream, loaded[v], problem, all[v]};
      const auto whole = test::compress_in_chunks(data, launch, [](int) { return 100'000; });
      const auto difference = data.compare(whole.pool);
      CAPTURE(difference.share);
      REQUIRE(difference.problem.empty());
      REQUIRE_FALSE(difference.beyond_step);
      REQUIRE(difference.share < 0.002);
      worst = std::max(worst, difference.share);
      // The same bits again, and however the tokens come.
      REQUIRE(test::compress_in_chunks(data, launch, [](int) { return 100'000; }).pool ==
              whole.pool);
      REQUIRE(test::compress_in_chunks(data, launch, [](int step) {
                return 1 + step * 5 % 13;
              }).pool == whole.pool);
      REQUIRE(test::compress_with_rollbacks(data, launch).pool == whole.pool);
    }
  }
  fmt::print("compress_kv: {} variants, at most {:.2e} of the elements a step away\n", variants,
             worst);
}

}  // namespace

TEST_CASE("compress_kv makes the reference's entries however their tokens come",
          "[gpu][families]") {
  check({1027, 514, 39, 3, 256}, {1000, 513, 129, 5, 384});
}
TEST_CASE("compress_kv stays in bounds", "[gpu][families][sanitize]") {
  check({45, 24, 3}, {261, 128, 5}, 3);
}
