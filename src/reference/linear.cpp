#include "src/reference/linear.hpp"

#include <algorithm>
#include <memory>

#include "src/reference/kernels.hpp"
#include "src/reference/numerics.hpp"

namespace ingot::reference {
namespace {

/// Floats of a dequantised tile. One row of x reads it once: it need not outgrow L1. Many rows come
/// back to it four at a time: as large as L2 bears, so that x is read from afar seldom.
constexpr int kSmallTileFloats = 16384;
constexpr int kLargeTileFloats = 65536;

/// A dequantised weight costs about as much as this many multiply-adds.
constexpr std::int64_t kDequantizeMacs = 8;

}  // namespace

void linear_rows(const WeightMatrix& weight, std::int64_t begin, std::int64_t end,
                 std::span<const float* const> x, std::span<float* const> y) {
  const int k = weight.columns;
  const int tile_floats = x.size() <= 4 ? kSmallTileFloats : kLargeTileFloats;
  const int tile_rows = std::clamp(tile_floats / k / 4 * 4, 4, 64);
  const auto tile = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(tile_rows) *
                                                            static_cast<std::size_t>(k));
  std::vector<float*> out(y.begin(), y.end());
  for (float*& row : out)
    row += begin;
  for (std::int64_t first = begin; first < end; first += tile_rows) {
    const int count = static_cast<int>(std::min<std::int64_t>(tile_rows, end - first));
    dequantize_rows(weight, first, count, tile.get());
    dot_rows(x.data(), static_cast<int>(x.size()), tile.get(), count, k, out.data());
    for (float*& row : out)
      row += count;
  }
}

std::int64_t linear_work(const WeightMatrix& weight, std::int64_t x_rows) {
  return (x_rows + kDequantizeMacs) * weight.columns * weight.rows;
}

std::int64_t linear_grain(const WeightMatrix& weight, std::int64_t x_rows) {
  return std::max<std::int64_t>(4, kThreadWork * weight.rows / linear_work(weight, x_rows));
}

void linear_f32(ThreadPool& pool, const WeightMatrix& weight, std::span<const float> x,
                std::span<float> y) {
  const auto rows = x.size() / static_cast<std::size_t>(weight.columns);
  std::vector<const float*> x_rows(rows);
  std::vector<float*> y_rows(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    x_rows[r] = x.data() + r * static_cast<std::size_t>(weight.columns);
    y_rows[r] = y.data() + r * static_cast<std::size_t>(weight.rows);
  }
  pool.parallel_for(weight.rows, linear_grain(weight, static_cast<std::int64_t>(rows)),
                    [&](std::int64_t begin, std::int64_t end) {
                      linear_rows(weight, begin, end, x_rows, y_rows);
                    });
}

void linear_bf16(ThreadPool& pool, const WeightMatrix& weight, std::span<const float> x,
                 std::span<float> y) {
  linear_f32(pool, weight, x, y);
  round_bf16(y);
}

std::vector<float> act_quantized(ThreadPool& pool, std::span<const float> x, int width) {
  std::vector<float> quantized(x.begin(), x.end());
  const auto step = static_cast<std::size_t>(width);
  pool.parallel_for(static_cast<std::int64_t>(x.size() / step), 1 + 65536 / width,
                    [&](std::int64_t begin, std::int64_t end) {
                      for (auto r = static_cast<std::size_t>(begin);
                           r < static_cast<std::size_t>(end); ++r) {
                        act_quant(std::span(quantized).subspan(r * step, step), kActGroup);
                      }
                    });
  return quantized;
}

}  // namespace ingot::reference
