#include "kernel_templates/fp8_weight_tiles.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <set>
#include <vector>

#include "kernel_templates/fp8_linear.args.h"
#include "kernel_templates/fp8_linear_problem.hpp"
#include "runtime/base/error.hpp"

using namespace ingot;

namespace {

std::vector<std::byte> counted(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::byte>((i * 2654435761U) >> 13);
  return bytes;
}

}  // namespace

TEST_CASE("FP8 tiles hold every byte of the weight once, where the index says", "[cpu][families]") {
  constexpr int kRows = 256;
  constexpr int kCols = 384;
  const auto weight = counted(kRows * kCols);
  std::vector<std::byte> tiles(weight.size());
  kernels::pack_fp8_tiles(weight, kRows, kCols, tiles);
  std::set<std::size_t> places;
  int misplaced = 0;
  for (int row = 0; row < kRows; ++row) {
    for (int col = 0; col < kCols; ++col) {
      const std::size_t at = kernels::fp8_tile_index(row, col, kCols);
      places.insert(at);
      if (tiles[at] != weight[static_cast<std::size_t>(row * kCols + col)]) ++misplaced;
    }
  }
  CHECK(misplaced == 0);
  CHECK(places.size() == weight.size());
  CHECK(*places.rbegin() == weight.size() - 1);

  std::vector<std::byte> back(weight.size());
  kernels::unpack_fp8_tiles(tiles, kRows, kCols, back);
  CHECK(back == weight);
}

TEST_CASE("FP8 tiles of a range are those of the range alone", "[cpu][families]") {
  constexpr std::size_t kRows = 384, kCols = 512, kPart = 128;
  const auto weight = counted(kRows * kCols);
  for (const std::size_t row0 : {0, 128, 256}) {
    for (const std::size_t col0 : {0, 128, 384}) {
      std::vector<std::byte> alone;
      for (std::size_t row = row0; row < row0 + kPart; ++row) {
        const auto* first = &weight[row * kCols + col0];
        alone.insert(alone.end(), first, first + kPart);
      }
      std::vector<std::byte> expected(alone.size());
      kernels::pack_fp8_tiles(alone, kPart, kPart, expected);
      std::vector<std::byte> tiles(alone.size());
      kernels::pack_fp8_tiles(&weight[row0 * kCols + col0], kCols, kPart, kPart, tiles);
      CHECK(tiles == expected);
    }
  }
}

TEST_CASE("a lane of an mma result holds four neighbouring weight rows", "[cpu][families]") {
  for (int base = 0; base < 128; base += 16) {
    for (int c = 0; c < 4; ++c) {
      const int lines[] = {2 * c, 2 * c + 1, 8 + 2 * c, 9 + 2 * c};
      for (int i = 0; i < 4; ++i)
        CHECK(kernels::fp8_tile_row(base + lines[i]) == base + 4 * c + i);
    }
  }
}

TEST_CASE("eight lines of a tile put one column's chunks into eight bank groups",
          "[cpu][families]") {
  for (int column = 0; column < 128; column += 16) {
    std::set<int> groups;
    for (int line = 0; line < 8; ++line)
      groups.insert(kernels::fp8_tile_offset(line, column) / 16 % 8);
    CHECK(groups.size() == 8);
  }
}

TEST_CASE("FP8 tiles refuse weights that are no whole tiles", "[cpu][families]") {
  std::vector<std::byte> bytes(128 * 128);
  CHECK_THROWS_AS(kernels::pack_fp8_tiles(bytes, 64, 256, bytes), EngineError);
  std::vector<std::byte> small(100);
  CHECK_THROWS_AS(kernels::pack_fp8_tiles(bytes, 128, 128, small), EngineError);
  CHECK_THROWS_AS(kernels::unpack_fp8_tiles(bytes, 0, 0, bytes), EngineError);
}

TEST_CASE("splits of K are whole, even and in order", "[cpu][families]") {
  for (const int tiles : {1, 5, 9, 32, 64}) {
    for (int splits = 1; splits <= tiles; ++splits) {
      CHECK(kernels::fp8_linear_split_begin(tiles, splits, 0) == 0);
      CHECK(kernels::fp8_linear_split_begin(tiles, splits, splits) == tiles);
      const int longest = kernels::fp8_linear_split_begin(tiles, splits, 1);
      for (int split = 0; split < splits; ++split) {
        const int length = kernels::fp8_linear_split_begin(tiles, splits, split + 1) -
                           kernels::fp8_linear_split_begin(tiles, splits, split);
        CHECK(length >= 1);
        CHECK(length <= longest);
        CHECK(length >= longest - 1);
      }
    }
  }
}

TEST_CASE("a grid covers every strip, token and split and is even", "[cpu][families]") {
  for (const int rows : {128, 1536, 32768}) {
    for (const int tokens : {1, 17, 256}) {
      for (const int split_k : {1, 3, 8}) {
        const kernels::Fp8LinearProblem problem{.rows = {rows}, .cols = 4096, .tokens = tokens};
        const cu::Dim3 grid = kernels::fp8_linear_grid(problem, 16, split_k, 132);
        CHECK(grid.x == static_cast<unsigned>(split_k));
        CHECK(grid.y == static_cast<unsigned>((tokens + 15) / 16));
        CHECK(grid.z >= 1);
        CHECK(grid.z <= static_cast<unsigned>(problem.strips()));
        const int across = static_cast<int>(grid.x * grid.y);
        if (across <= 132) CHECK(kernels::block_count(grid) <= 132);
      }
    }
  }
  const kernels::Fp8LinearProblem wq_b{.rows = {32768}, .cols = 1024, .tokens = 1};
  const cu::Dim3 grid = kernels::fp8_linear_grid(wq_b, 8, 1, 132);
  CHECK(grid == cu::Dim3{1, 1, 128});  // two rounds; 132 blocks would need two as well
  CHECK(kernels::fp8_linear_block_tiles(wq_b, 1, grid) == 16);
}
