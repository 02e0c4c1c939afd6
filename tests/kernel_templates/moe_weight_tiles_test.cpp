#include "kernel_templates/moe_weight_tiles.hpp"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "kernel_templates/moe_decode.args.h"
#include "runtime/base/error.hpp"

using namespace ingot;

namespace {

/// A stored matrix with random codes and scales; the scales of a row spread over `spread` powers.
struct Stored {
  int rows, cols;
  std::vector<std::byte> codes, scales;

  Stored(int rows_, int cols_, int spread, unsigned seed) : rows(rows_), cols(cols_) {
    std::mt19937 random(seed);
    codes.resize(static_cast<std::size_t>(rows * cols / 2));
    scales.resize(static_cast<std::size_t>(rows * cols / 32));
    for (auto& byte : codes)
      byte = static_cast<std::byte>(random() & 0xff);
    for (auto& byte : scales)
      byte = static_cast<std::byte>(1 + random() % static_cast<unsigned>(spread));
  }
  kernels::Fp4Matrix from(int row, int col) const {
    return {.codes = &codes[static_cast<std::size_t>(row * cols / 2 + col / 2)],
            .scales = &scales[static_cast<std::size_t>(row * cols / 32 + col / 32)],
            .code_stride = cols / 2,
            .scale_stride = cols / 32};
  }
  int code(int row, int col) const {
    const auto byte = std::to_integer<int>(codes[static_cast<std::size_t>(row * cols + col) / 2]);
    return col % 2 == 0 ? byte & 15 : byte >> 4;
  }
  int scale(int row, int col) const {
    return std::to_integer<int>(scales[static_cast<std::size_t>(row * cols + col) / 32]);
  }
};

}  // namespace

TEST_CASE("every element and scale of an expert comes back from its jobs", "[cpu][families]") {
  // A rank's share: some rows and columns of larger matrices. All 254 scales occur.
  constexpr int kInter = 48, kHidden = 256;
  const Stored gate(96, 512, 254, 1), up(96, 512, 254, 2), down(320, 256, 254, 3);
  std::vector<std::byte> jobs(kernels::moe_tile_bytes(2 * kInter, kHidden));
  kernels::pack_moe_gate_up(gate.from(48, 128), up.from(48, 128), kInter, kHidden, jobs);
  int wrong = 0;
  for (int row = 0; row < kInter; ++row)
    for (int col = 0; col < kHidden; ++col)
      for (const bool is_up : {false, true}) {
        const Stored& stored = is_up ? up : gate;
        const std::byte* job = &jobs[static_cast<std::size_t>(
            (row / 16 * (kHidden / 128) + col / 128) * kernels::MOE_JOB_BYTES)];
        const int at = row % 16 / 8 * 16 + (is_up ? 8 : 0) + row % 8;
        wrong += kernels::moe_job_code(job, at, col % 128) != stored.code(48 + row, 128 + col);
        wrong +=
            kernels::moe_job_scale(job, at, col % 128 / 32) != stored.scale(48 + row, 128 + col);
      }
  CHECK(wrong == 0);

  constexpr int kOut = 320, kShare = 128;
  std::vector<std::byte> down_jobs(kernels::moe_tile_bytes(kOut, kShare));
  kernels::pack_moe_down(down.from(0, 128), kOut, kShare, down_jobs);
  for (int row = 0; row < kOut; ++row)
    for (int col = 0; col < kShare; ++col) {
      const std::byte* job =
          &down_jobs[static_cast<std::size_t>(row / 32 * kernels::MOE_JOB_BYTES)];
      wrong += kernels::moe_job_code(job, row % 32, col) != down.code(row, 128 + col);
      wrong += kernels::moe_job_scale(job, row % 32, col / 32) != down.scale(row, 128 + col);
    }
  CHECK(wrong == 0);
}

TEST_CASE("packing an expert refuses NaN scales and a scale too small for its codes",
          "[cpu][families]") {
  Stored down(32, 128, 20, 4);
  std::vector<std::byte> jobs(kernels::moe_tile_bytes(32, 128));
  down.scales[5] = std::byte{255};
  CHECK_THROWS_WITH(kernels::pack_moe_down(down.from(0, 0), 32, 128, jobs), Catch::Contains("NaN"));
  down.scales[5] = std::byte{0};
  CHECK_THROWS_WITH(kernels::pack_moe_down(down.from(0, 0), 32, 128, jobs),
                    Catch::Contains("2^-127"));
  for (int col = 32; col < 64; col += 2)  // row 1, group 1
    down.codes[static_cast<std::size_t>((128 + col) / 2)] = std::byte{0x80};
  CHECK_NOTHROW(kernels::pack_moe_down(down.from(0, 0), 32, 128, jobs));
}

TEST_CASE("packing an expert refuses sizes that are no whole jobs", "[cpu][families]") {
  const Stored down(64, 256, 20, 5);
  std::vector<std::byte> jobs(kernels::moe_tile_bytes(64, 256));
  CHECK_THROWS_AS(kernels::pack_moe_down(down.from(0, 0), 48, 256, jobs), EngineError);
  CHECK_THROWS_AS(kernels::pack_moe_down(down.from(0, 0), 64, 192, jobs), EngineError);
  CHECK_THROWS_AS(kernels::pack_moe_down(down.from(0, 0), 32, 256, jobs), EngineError);
  CHECK_THROWS_AS(kernels::pack_moe_gate_up(down.from(0, 0), down.from(0, 0), 24, 256, jobs),
                  EngineError);
}
