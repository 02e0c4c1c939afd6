#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "kernel_templates/indexer_queries.space.hpp"
#include "tests/support/device_data.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/indexer_queries.hpp"

using namespace ingot;
using kernels::IndexerQueries;

TEST_CASE("indexer_queries writes the reference's bytes", "[gpu][families][sanitize]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  int variants = 0;
  for (IndexerQueries::Problem problem : IndexerQueries::sample_problems()) {
    problem.rows = 37;
    const auto in = test::index_query_inputs(problem.rows, problem.heads);
    const auto expected = test::index_queries_reference(in);
    const auto q = test::to_device(context, stream, in.q);
    const auto projected = test::to_device(context, stream, in.projected);
    const auto frequencies = test::to_device(context, stream, in.frequencies);
    const auto positions = test::to_device(context, stream, in.positions);
    for (const auto& params :
         IndexerQueries::space(problem, cu::limits_of(context.device())).candidates()) {
      const jit::Variant variant{std::string(IndexerQueries::kStem), jit::param_values(params)};
      CAPTURE(jit::describe(variant));
      const auto kernel = test::load_variant(context, variant);
      const auto codes = cu::DeviceBuffer::allocate(context, expected.codes.size());
      const auto scales = cu::DeviceBuffer::allocate(context, expected.scales.size());
      const auto weights = cu::DeviceBuffer::allocate(context, expected.weights.size() * 2);
      for (const auto* buffer : {&codes, &scales, &weights})
        buffer->fill_bytes(stream, 0xee);
      kernel.launch(stream, IndexerQueries::launch_shape(problem, params),
                    kernels::IndexerQueriesArgs{.q = q.as<kernels::bf16>(),
                                                .projected = projected.as<kernels::bf16>(),
                                                .frequencies = frequencies.as<float>(),
                                                .positions = positions.as<int>(),
                                                .codes = codes.as<kernels::u8>(),
                                                .scales = scales.as<kernels::u8>(),
                                                .weights = weights.as<kernels::bf16>(),
                                                .q_stride = in.q_stride,
                                                .weight_scale = in.weight_scale});
      test::IndexQueries got{test::to_host<std::uint8_t>(stream, codes),
                             test::to_host<std::uint8_t>(stream, scales),
                             test::to_host<std::uint16_t>(stream, weights)};
      test::clear_codes_of_nan(got);
      REQUIRE(got.scales == expected.scales);
      REQUIRE(got.codes == expected.codes);
      REQUIRE(got.weights == expected.weights);
      ++variants;
    }
  }
  fmt::print("indexer_queries: {} variants equal the reference\n", variants);
}
