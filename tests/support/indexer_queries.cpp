#include "tests/support/indexer_queries.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <span>

#include "src/reference/compressor.hpp"
#include "src/reference/numerics.hpp"
#include "src/reference/rope.hpp"

namespace ingot::test {
namespace {

constexpr std::size_t kDims = 128, kGroup = 32;

}  // namespace

IndexQueryInputs index_query_inputs(int rows, int heads) {
  std::mt19937 random(53);
  std::normal_distribution<float> normal;
  IndexQueryInputs in;
  in.rows = rows;
  in.heads = heads;
  in.q_stride = heads * static_cast<int>(kDims) + 4;
  for (int row = 0; row < rows; ++row) {
    in.positions.push_back(row == 0 ? 0 : static_cast<int>(random() % 1'048'576));
    for (int i = 0; i < in.q_stride; ++i) {
      const int head = i / static_cast<int>(kDims);
      float value = normal(random);
      if (head % 5 == 1 && row == 0) value = 0;
      if (head % 5 == 2) value = std::ldexp(value, static_cast<int>(random() % 60) - 30);
      if (row == rows - 1 && i == 3) value = std::nanf("");
      in.q.push_back(reference::bf16_bits(value));
    }
    for (int head = 0; head < heads; ++head)
      in.projected.push_back(reference::bf16_bits(normal(random)));
  }
  for (int i = 0; i < 32; ++i)
    in.frequencies.push_back(1.0F / std::pow(160000.0F, static_cast<float>(i) / 32));
  in.weight_scale = static_cast<float>(std::pow(128, -0.5) * std::pow(heads, -0.5));
  return in;
}

IndexQueries index_queries_reference(const IndexQueryInputs& in) {
  const std::vector<std::int64_t> positions(in.positions.begin(), in.positions.end());
  const reference::RopeAngles angles(in.frequencies, positions);
  IndexQueries result;
  for (std::size_t row = 0; row < positions.size(); ++row) {
    for (std::size_t head = 0; head < static_cast<std::size_t>(in.heads); ++head) {
      std::vector<float> x;
      for (std::size_t i = 0; i < kDims; ++i)
        x.push_back(reference::bf16_value(
            in.q[row * static_cast<std::size_t>(in.q_stride) + head * kDims + i]));
      angles.rotate(row, x);
      reference::hadamard(x);
      std::vector<std::uint8_t> codes(kDims / 2), scales(kDims / kGroup);
      std::vector<bool> nan(scales.size(), false);
      for (std::size_t i = 0; i < kDims; ++i) {
        if (!std::isnan(x[i])) continue;
        nan[i / kGroup] = true;
        x[i] = 0;
      }
      reference::fp4_quant_bytes(x, codes, scales);
      for (std::size_t g = 0; g < scales.size(); ++g)
        if (nan[g]) scales[g] = 255;
      result.codes.insert(result.codes.end(), codes.begin(), codes.end());
      result.scales.insert(result.scales.end(), scales.begin(), scales.end());
      result.weights.push_back(reference::bf16_bits(
          reference::bf16_value(in.projected[row * static_cast<std::size_t>(in.heads) + head]) *
          in.weight_scale));
    }
  }
  clear_codes_of_nan(result);
  return result;
}

void clear_codes_of_nan(IndexQueries& queries) {
  for (std::size_t group = 0; group < queries.scales.size(); ++group)
    if (queries.scales[group] == 255)
      std::fill_n(queries.codes.begin() + static_cast<std::ptrdiff_t>(group * kGroup / 2),
                  kGroup / 2, std::uint8_t{0});
}

}  // namespace ingot::test
