#include "kernel_templates/fp8_weight_tiles.hpp"

#include <fmt/format.h>

#include <cstring>

#include "kernel_templates/fp8_linear.args.h"
#include "runtime/base/error.hpp"

namespace ingot::kernels {
namespace {

constexpr int kChunk = 16;  // bytes that stay together

void check_sizes(std::size_t from_bytes, std::size_t to_bytes, int rows, int cols) {
  const bool whole = rows > 0 && cols > 0 && rows % FP8_TILE == 0 && cols % FP8_TILE == 0;
  const std::size_t wanted =
      whole ? static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols) : 0;
  if (whole && from_bytes == wanted && to_bytes == wanted) return;
  throw EngineError(ErrorCode::invalid_argument,
                    fmt::format("reordering an FP8 weight of {} x {} from {} bytes to {}: rows and "
                                "columns must be multiples of {} and both sides hold one byte each",
                                rows, cols, from_bytes, to_bytes, FP8_TILE));
}

/// Calls visit(offset in the weight, offset in the tiles) for every 16-byte chunk, tiles ascending.
/// @param stride  bytes from row to row of the weight
template <class Visit>
void for_each_chunk(std::ptrdiff_t stride, int rows, int cols, Visit visit) {
  std::size_t tile = 0;
  for (int row0 = 0; row0 < rows; row0 += FP8_TILE) {
    for (int col0 = 0; col0 < cols; col0 += FP8_TILE, tile += FP8_TILE_BYTES) {
      for (int line = 0; line < FP8_TILE; ++line) {
        const std::ptrdiff_t row = (row0 + fp8_tile_row(line)) * stride + col0;
        for (int col = 0; col < FP8_TILE; col += kChunk) {
          visit(static_cast<std::size_t>(row + col),
                tile + static_cast<std::size_t>(fp8_tile_offset(line, col)));
        }
      }
    }
  }
}

}  // namespace

void pack_fp8_tiles(std::span<const std::byte> weight, int rows, int cols,
                    std::span<std::byte> tiles) {
  check_sizes(weight.size(), tiles.size(), rows, cols);
  pack_fp8_tiles(weight.data(), cols, rows, cols, tiles);
}

void pack_fp8_tiles(const std::byte* first, std::ptrdiff_t stride, int rows, int cols,
                    std::span<std::byte> tiles) {
  check_sizes(tiles.size(), tiles.size(), rows, cols);
  std::byte* to = tiles.data();
  for_each_chunk(stride, rows, cols, [=](std::size_t in_weight, std::size_t in_tiles) {
    std::memcpy(to + in_tiles, first + in_weight, kChunk);
  });
}

void unpack_fp8_tiles(std::span<const std::byte> tiles, int rows, int cols,
                      std::span<std::byte> weight) {
  check_sizes(tiles.size(), weight.size(), rows, cols);
  for_each_chunk(cols, rows, cols, [&](std::size_t in_weight, std::size_t in_tiles) {
    std::memcpy(&weight[in_weight], &tiles[in_tiles], kChunk);
  });
}

std::size_t fp8_tile_index(int row, int col, int cols) {
  const int in16 = row % 16;
  // The inverse of fp8_tile_row: rows 4c .. 4c + 3 lie in lines 2c, 2c + 1, 8 + 2c, 9 + 2c.
  const int line = row % FP8_TILE / 16 * 16 + in16 / 4 * 2 + in16 / 2 % 2 * 8 + in16 % 2;
  const auto tile =
      static_cast<std::size_t>(row / FP8_TILE) * static_cast<std::size_t>(cols / FP8_TILE) +
      static_cast<std::size_t>(col / FP8_TILE);
  return tile * FP8_TILE_BYTES + static_cast<std::size_t>(fp8_tile_offset(line, col % FP8_TILE));
}

}  // namespace ingot::kernels
