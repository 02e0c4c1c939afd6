#include <catch2/catch.hpp>

#include "kernel_templates/moe_decode.space.hpp"

using namespace ingot;
using kernels::MoeDecode;

namespace {

/// A default as it was measured on an H200 beside the best candidate (docs/benchmarks.md).
struct Measured {
  int inter, batch;
  struct {
    int warps, stages, nmax, x_buffers, barriers;
  } is;
  double us, best_us;
};
constexpr Measured kMeasured[] = {
    {256, 1, {8, 6, 1, 1, 1}, 9.8, 9.8},        {256, 4, {16, 6, 4, 1, 2}, 20.1, 19.9},
    {256, 16, {16, 8, 8, 2, 2}, 47.1, 47.0},    {256, 64, {16, 8, 8, 2, 2}, 107.2, 106.5},
    {256, 256, {8, 7, 8, 2, 2}, 176.3, 176.2},  {2048, 1, {16, 6, 1, 1, 2}, 28.8, 28.8},
    {2048, 4, {16, 6, 4, 1, 2}, 85.2, 85.2},    {2048, 16, {16, 8, 8, 2, 2}, 273.0, 273.0},
    {2048, 64, {16, 8, 8, 2, 2}, 678.1, 678.1}, {2048, 256, {16, 6, 8, 2, 2}, 1043.7, 1043.7},
    {512, 1, {16, 6, 1, 1, 1}, 13.6, 13.6},     {512, 4, {16, 6, 4, 1, 2}, 29.8, 29.8},
    {512, 16, {16, 8, 8, 2, 2}, 79.3, 79.3},    {512, 64, {16, 8, 8, 2, 2}, 184.1, 184.1},
    {512, 256, {8, 7, 8, 2, 2}, 303.9, 303.9},  {1024, 1, {16, 6, 1, 1, 2}, 18.6, 18.6},
    {1024, 4, {16, 6, 4, 1, 2}, 48.4, 48.4},    {1024, 16, {16, 8, 8, 2, 2}, 144.6, 144.6},
    {1024, 64, {16, 8, 8, 2, 2}, 352.9, 352.9}, {1024, 256, {16, 6, 8, 2, 2}, 569.0, 569.0},
};

}  // namespace

TEST_CASE("moe_decode's defaults on an H200 are those measured within 1.3 times the best",
          "[cpu][families]") {
  const auto limits = cu::limits_of_arch("sm_90a");
  REQUIRE(limits);
  for (const Measured& cell : kMeasured) {
    CAPTURE(cell.inter, cell.batch);
    const auto params = MoeDecode::default_params(
        {.batch = cell.batch, .inter = cell.inter, .whole_experts = cell.inter == 2048}, *limits);
    CHECK(params.STAGE_JOBS == 8);
    CHECK(params.WARPS == cell.is.warps);
    CHECK(params.REDUCE_WARPS == (cell.is.warps == 16 ? 2 : 4));
    CHECK(params.STAGES == cell.is.stages);
    CHECK(params.NMAX == cell.is.nmax);
    CHECK(params.X_BUFFERS == cell.is.x_buffers);
    CHECK(params.BARRIERS == cell.is.barriers);
    CHECK(cell.us <= 1.3 * cell.best_us);
  }
}
