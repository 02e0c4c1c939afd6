#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

/// The layout in which the fp8_linear families read a weight: see fp8_linear.args.h.
namespace ingot::kernels {

/// Reorders an e4m3 weight into tiles of 128 x 128. A bijection on bytes: the result is as large as
/// the input. Scales keep the checkpoint's order.
/// @param weight  [rows, cols] e4m3, both multiples of 128
/// @param tiles   [rows / 128][cols / 128][16384]; does not overlap `weight`
/// Throws EngineError(invalid_argument) for other sizes.
void pack_fp8_tiles(std::span<const std::byte> weight, int rows, int cols,
                    std::span<std::byte> tiles);
/// The same for a range of a stored weight, such as a rank's share.
/// @param first   its first element
/// @param stride  bytes from row to row
void pack_fp8_tiles(const std::byte* first, std::ptrdiff_t stride, int rows, int cols,
                    std::span<std::byte> tiles);

/// The reverse.
void unpack_fp8_tiles(std::span<const std::byte> tiles, int rows, int cols,
                      std::span<std::byte> weight);

/// Where element (row, col) of a weight with `cols` columns lies in its tiles.
std::size_t fp8_tile_index(int row, int col, int cols);

}  // namespace ingot::kernels
