#include "tools/kernel_bench/linear_data.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <span>
#include <thread>

#include "kernel_templates/fp8_weight_tiles.hpp"
#include "src/reference/numerics.hpp"

namespace ingot::bench {
namespace {

using kernels::FP8_TILE;
constexpr std::size_t kTile = FP8_TILE;

/// splitmix64: a generator that is fast enough for hundreds of megabytes.
struct Random {
  std::uint64_t state;
  std::uint64_t next() {
    std::uint64_t z = (state += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  /// Sum of four uniform numbers, shifted and scaled: mean 0, variance 1.
  float about_normal() {
    const std::uint64_t bits = next();
    float sum = 0;
    for (int i = 0; i < 4; ++i)
      sum += static_cast<float>((bits >> (16 * i)) & 0xffffU) * 0x1p-16F;
    return (sum - 2.0F) * 1.7320508F;
  }
};

template <class Job>
void on_all_cores(std::size_t count, Job job) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      for (std::size_t at = next++; at < count; at = next++)
        job(at);
    });
  }
}

std::array<float, 256> e4m3_table() {
  std::array<float, 256> values{};
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = reference::e4m3_value(static_cast<std::uint8_t>(i));
  return values;
}

}  // namespace

std::vector<std::byte> LinearWeights::tiles() const {
  std::vector<std::byte> packed(codes.size());
  kernels::pack_fp8_tiles(std::as_bytes(std::span(codes)), rows, cols, packed);
  return packed;
}

LinearWeights random_weights(int rows, int cols, std::uint64_t seed) {
  Random random{seed};
  LinearWeights weights{.rows = rows, .cols = cols, .codes = {}, .scales = {}};
  weights.codes.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols));
  for (std::size_t i = 0; i < weights.codes.size(); i += 8) {
    const std::uint64_t bits = random.next();
    for (std::size_t b = 0; b < 8; ++b) {
      auto code = static_cast<std::uint8_t>(bits >> (8 * b));
      if ((code & 0x7f) == 0x7f) code ^= 0x10;  // not NaN
      weights.codes[i + b] = code;
    }
  }
  weights.scales.resize(weights.codes.size() / (kTile * kTile));
  for (auto& scale : weights.scales)
    scale = static_cast<std::uint8_t>(117 + random.next() % 5);
  return weights;
}

LinearInput quantized_input(std::vector<std::uint16_t> x, int tokens, int cols) {
  LinearInput input{.tokens = tokens,
                    .cols = cols,
                    .rows = (tokens + 3) / 4 * 4,
                    .x = std::move(x),
                    .codes = {},
                    .scales = {}};
  input.codes.resize(input.x.size());
  input.scales.resize(input.x.size() / kTile);
  on_all_cores(input.scales.size(), [&](std::size_t group) {
    std::array<float, kTile> values{};
    std::array<std::uint8_t, 1> scale{};
    for (std::size_t i = 0; i < kTile; ++i)
      values[i] = reference::bf16_value(input.x[group * kTile + i]);
    reference::act_quant_bytes(values, FP8_TILE,
                               std::span(input.codes).subspan(group * kTile, kTile), scale);
    input.scales[group] = reference::e8m0_value(scale[0]);
  });
  return input;
}

LinearInput random_input(int tokens, int cols, std::uint64_t seed) {
  Random random{seed};
  const auto count = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(cols);
  std::vector<std::uint16_t> x(count);
  for (std::size_t group = 0; group < count / kTile; ++group) {
    float magnitude = std::ldexp(1.0F, static_cast<int>(random.next() % 7) - 3);
    if (group % 97 == 5) magnitude = 0;         // zeros
    if (group % 97 == 6) magnitude = 0x1p-20F;  // below the floor of 1e-4
    for (std::size_t i = 0; i < kTile; ++i)
      x[group * kTile + i] = reference::bf16_bits(random.about_normal() * magnitude);
  }
  return quantized_input(std::move(x), tokens, cols);
}

std::vector<std::byte> LinearInput::tiles() const {
  const std::size_t k_tiles = static_cast<std::size_t>(cols) / kTile;
  std::vector<std::byte> packed(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols));
  for (std::size_t token = 0; token < static_cast<std::size_t>(tokens); ++token) {
    for (std::size_t k = 0; k < k_tiles; ++k) {
      const std::uint8_t* from = &codes[(token * k_tiles + k) * kTile];
      std::byte* to = &packed[(k * static_cast<std::size_t>(rows) + token) * kTile];
      for (std::size_t chunk = 0; chunk < 8; ++chunk)
        std::memcpy(to + (chunk ^ (token % 8)) * 16, from + chunk * 16, 16);
    }
  }
  return packed;
}

std::vector<float> LinearInput::tile_scales() const {
  const std::size_t k_tiles = static_cast<std::size_t>(cols) / kTile;
  std::vector<float> by_tile(k_tiles * static_cast<std::size_t>(rows));
  for (std::size_t token = 0; token < static_cast<std::size_t>(tokens); ++token) {
    for (std::size_t k = 0; k < k_tiles; ++k)
      by_tile[k * static_cast<std::size_t>(rows) + token] = scales[token * k_tiles + k];
  }
  return by_tile;
}

std::vector<float> reference_linear(const LinearWeights& weights, const LinearInput& input) {
  const auto rows = static_cast<std::size_t>(weights.rows);
  const auto cols = static_cast<std::size_t>(weights.cols);
  const auto tokens = static_cast<std::size_t>(input.tokens);
  const std::size_t k_tiles = cols / kTile;
  const auto e4m3 = e4m3_table();
  std::vector<float> y(tokens * rows, 0.0F);
  on_all_cores(rows / kTile, [&](std::size_t strip) {
    std::vector<float> tile(kTile *
                            kTile);  // [column, row]: sums of neighbouring rows in one vector
    for (std::size_t k = 0; k < k_tiles; ++k) {
      for (std::size_t row = 0; row < kTile; ++row) {
        for (std::size_t col = 0; col < kTile; ++col) {
          tile[col * kTile + row] =
              e4m3[weights.codes[(strip * kTile + row) * cols + k * kTile + col]];
        }
      }
      const float weight_scale = reference::e8m0_value(weights.scales[strip * k_tiles + k]);
      for (std::size_t token = 0; token < tokens; ++token) {
        std::array<float, kTile> sums{};
        const std::uint8_t* x = &input.codes[token * cols + k * kTile];
        for (std::size_t col = 0; col < kTile; ++col) {
          const float value = e4m3[x[col]];
          for (std::size_t row = 0; row < kTile; ++row)
            sums[row] += value * tile[col * kTile + row];
        }
        const float scale = input.scales[token * k_tiles + k] * weight_scale;
        for (std::size_t row = 0; row < kTile; ++row)
          y[token * rows + strip * kTile + row] += sums[row] * scale;
      }
    }
  });
  return y;
}

Comparison compare(const std::vector<std::uint16_t>& got, const std::vector<float>& expected,
                   int columns) {
  Comparison result;
  const auto width = static_cast<std::size_t>(columns);
  double difference = 0;
  double size = 0;
  for (std::size_t row = 0; row < expected.size() / width; ++row) {
    double squares = 0;
    for (std::size_t i = row * width; i < (row + 1) * width; ++i)
      squares += std::isfinite(expected[i]) ? static_cast<double>(expected[i]) * expected[i] : 0.0;
    const double root_mean_square = std::sqrt(squares / static_cast<double>(width));
    for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
      if (got[i] == kPoison) ++result.unwritten;
      const double value = reference::bf16_value(got[i]);
      const double wanted = expected[i];
      if ((value == value) != (wanted == wanted)) ++result.wrong_kind;
      if (!std::isfinite(wanted)) {
        if (wanted == wanted && value == value && value != wanted) ++result.wrong_kind;
        continue;
      }
      if (value != value) continue;
      const double error = std::abs(value - wanted);
      const double allowed = 0x1p-8 * std::abs(wanted) + 0x1p-8 * root_mean_square + 1e-30;
      result.worst = std::max(result.worst, error / allowed);
      difference += error * error;
    }
    size += squares;
  }
  result.relative_error = std::sqrt(difference / std::max(size, 1e-60));
  return result;
}

}  // namespace ingot::bench
