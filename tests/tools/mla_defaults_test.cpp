#include <catch2/catch.hpp>

#include "kernel_templates/sparse_mla_decode_sm90.space.hpp"
#include "runtime/jit/arch.hpp"
#include "tools/mla_bench/cells.hpp"

using namespace ingot;
using namespace ingot::bench;

namespace {

/// Measured on an H200 (docs/benchmarks.md), microseconds with plain edges.
struct MeasuredDefault {
  int heads, rows, selected;
  const char* choice;  ///< of the default; its time; that of the best candidate
  double us, best_us;
};

constexpr MeasuredDefault kMeasured[] = {
    {64, 1, 512, "M h8 kv32x2 w8 g1 p4 s16", 7.29, 6.78},
    {64, 16, 512, "M h16 kv32x2 w8 g1 p4 s2", 17.42, 15.73},
    {64, 32, 512, "W h32 x4 s2", 19.99, 19.66},
    {64, 64, 512, "W h32 x4 s1", 24.02, 24.02},
    {64, 128, 512, "W h64 x3 s1", 30.46, 30.46},
    {32, 1, 512, "M h8 kv32x2 w8 g1 p4 s16", 6.87, 6.55},
    {32, 16, 512, "M h16 kv32x2 w8 g1 p4 s4", 12.34, 12.34},
    {32, 64, 512, "M h16 kv64x2 w4 g2 p2 s1", 19.94, 19.94},
    {32, 128, 512, "W h32 x4 s1", 25.05, 25.05},
    {16, 1, 512, "M h8 kv32x2 w8 g1 p4 s16", 6.79, 6.50},
    {16, 16, 512, "M h8 kv32x2 w8 g1 p4 s4", 10.02, 9.85},
    {16, 64, 512, "M h16 kv32x2 w8 g1 p4 s2", 18.47, 16.50},
    {16, 128, 512, "M h16 kv64x2 w4 g2 p2 s1", 21.20, 21.20},
    {8, 1, 512, "M h8 kv32x2 w8 g1 p4 s16", 6.76, 6.40},
    {8, 16, 512, "M h8 kv32x2 w8 g1 p4 s8", 8.49, 8.49},
    {8, 64, 512, "M h8 kv32x2 w8 g1 p4 s2", 15.98, 14.27},
    {8, 128, 512, "M h8 kv64x2 w4 g2 p2 s1", 18.85, 18.85},
    {64, 32, 64, "M h16 kv32x3 w4 g2 p2 s1", 10.68, 10.68},
    {64, 128, 64, "W h64 x3 s1", 16.09, 16.09},
    {32, 32, 64, "M h16 kv32x2 w8 g1 p4 s2", 10.13, 8.61},
    {32, 64, 64, "M h16 kv32x3 w4 g2 p2 s1", 10.79, 10.79},
    {16, 32, 64, "M h16 kv32x2 w8 g1 p4 s4", 9.34, 8.24},
    {16, 64, 64, "M h16 kv32x2 w8 g1 p4 s2", 10.35, 8.80},
    {16, 128, 64, "M h16 kv32x3 w4 g2 p2 s1", 11.33, 11.20},
    {8, 32, 64, "M h8 kv32x2 w8 g1 p4 s4", 7.40, 7.12},
    {8, 64, 64, "M h8 kv32x2 w8 g1 p4 s2", 8.77, 8.38},
    {8, 128, 64, "M h8 kv32x3 w4 g2 p2 s1", 9.65, 9.65},
    {64, 16, 1024, "W h32 x4 s4", 19.29, 19.29},
    {64, 32, 1024, "W h32 x4 s2", 27.47, 26.91},
    {64, 64, 1024, "W h32 x4 s1", 38.79, 36.45},
    {64, 128, 1024, "W h64 x3 s1", 47.22, 47.22},
    {32, 32, 1024, "M h16 kv32x2 w8 g1 p4 s2", 25.96, 23.37},
    {32, 64, 1024, "M h16 kv64x2 w4 g2 p2 s1", 30.17, 30.17},
    {32, 128, 1024, "W h32 x4 s1", 43.60, 43.60},
    {16, 32, 1024, "M h16 kv32x2 w8 g1 p4 s4", 17.09, 17.09},
    {16, 64, 1024, "M h16 kv32x2 w8 g1 p4 s2", 27.83, 24.21},
    {16, 128, 1024, "M h16 kv64x2 w4 g2 p2 s1", 31.12, 31.12},
    {8, 32, 1024, "M h8 kv32x2 w8 g1 p4 s4", 14.41, 13.91},
    {8, 64, 1024, "M h8 kv32x2 w8 g1 p4 s2", 23.78, 20.67},
    {8, 128, 1024, "M h8 kv64x2 w4 g2 p2 s1", 27.78, 27.78},
    {64, 64, 0, "W h32 x2 s1", 10.78, 10.78},
    {64, 128, 0, "W h64 x2 s1", 14.27, 14.27},
    {32, 64, 0, "M h16 kv32x2 w4 g2 p2 s1", 9.55, 9.55},
    {32, 128, 0, "W h32 x2 s1", 12.84, 12.84},
    {16, 64, 0, "M h16 kv32x2 w8 g1 p4 s2", 9.32, 8.27},
    {16, 128, 0, "M h16 kv32x2 w4 g2 p2 s1", 10.18, 10.18},
    {8, 64, 0, "M h8 kv32x2 w8 g1 p4 s2", 7.80, 7.70},
};

}  // namespace

TEST_CASE(
    "without tuning, sparse MLA decode takes a candidate that was measured within 1.3 times "
    "the best",
    "[cpu][tools]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  for (const MeasuredDefault& measured : kMeasured) {
    const MlaCell cell{measured.heads, measured.rows, measured.selected};
    CAPTURE(cell.name());
    int defaults = 0;
    for (const MlaCandidate& candidate : mla_candidates(cell, 0, limits)) {
      if (!candidate.is_default) continue;
      ++defaults;
      const std::string brief = candidate.brief();
      CHECK(brief.substr(0, brief.rfind(' ')) == measured.choice);
    }
    CHECK(defaults == 1);
    CHECK(measured.us <= 1.3 * measured.best_us);
  }
}

TEST_CASE(
    "wgmma is the default of sparse MLA decode on Hopper alone, where its blocks fill the card",
    "[cpu][tools]") {
  using Sm90 = kernels::SparseMlaDecodeSm90;
  for (const jit::Arch& arch : jit::known_archs()) {
    const auto limits = value_or_throw(cu::limits_of_arch(arch.name));
    CAPTURE(arch.name);
    CHECK(Sm90::is_default({.rows = 128, .heads = 64}, limits) == (arch.name == "sm_90a"));
    CHECK_FALSE(Sm90::is_default({.rows = 1, .heads = 64}, limits));
    CHECK_FALSE(Sm90::is_default({.rows = 128, .heads = 16}, limits));
  }
}
