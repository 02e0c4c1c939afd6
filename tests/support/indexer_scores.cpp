#include "tests/support/indexer_scores.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <span>

#include "src/reference/indexer.hpp"
#include "src/reference/numerics.hpp"

namespace ingot::test {
namespace {

constexpr int kDims = 128, kGroup = 32, kCodes = 64, kScales = 4;

std::size_t size(int n) {
  return static_cast<std::size_t>(n);
}

/// A key or query of one of several kinds, as stored bytes.
void make_entry(std::mt19937& random, int kind, std::span<std::uint8_t> codes,
                std::span<std::uint8_t> scales) {
  std::normal_distribution<float> normal;
  std::vector<float> values(kDims);
  for (int i = 0; i < kDims; ++i) {
    int exponent = 0;
    if (kind == 1) exponent = -6 * (i / kGroup);         // exact in any format
    if (kind == 2) exponent = i / kGroup == 1 ? 0 : 18;  // one group hardly counts
    if (kind == 3) exponent = 40;
    if (kind == 4) exponent = -60;
    values[size(i)] = kind == 5 ? 0.0F : std::ldexp(normal(random), exponent);
  }
  reference::fp4_quant_bytes(values, codes, scales);
  if (kind == 6) scales[2] = 255;
}

std::vector<float> values_of(std::span<const std::uint8_t> codes,
                             std::span<const std::uint8_t> scales) {
  std::vector<float> values;
  for (int i = 0; i < kDims; ++i) {
    const auto nibble = static_cast<std::uint8_t>(codes[size(i / 2)] >> (4 * (i % 2)) & 15);
    values.push_back(reference::e2m1_value(nibble) *
                     reference::e8m0_value(scales[size(i / kGroup)]));
  }
  return values;
}

std::size_t entry_at(const IndexScoreInputs& in, int row, int key) {
  const int page =
      in.page_table[size(in.sequences[size(row)] * in.page_stride + key / in.layout.page_entries)];
  return size(page) * size(in.layout.page_bytes);
}

}  // namespace

IndexScoreInputs index_score_inputs(const IndexLayout& layout, const std::vector<int>& counts,
                                    int rows_together, std::uint32_t seed) {
  std::mt19937 random(seed);
  IndexScoreInputs in;
  in.layout = layout;
  in.rows = static_cast<int>(counts.size());
  in.counts = counts;
  const int longest = std::max(*std::max_element(counts.begin(), counts.end()), 1);
  in.page_stride = (longest + layout.page_entries - 1) / layout.page_entries;
  const int sequences = (in.rows + rows_together - 1) / rows_together;
  for (int row = 0; row < in.rows; ++row)
    in.sequences.push_back(sequences - 1 - row / rows_together);
  in.page_table.resize(size(sequences * in.page_stride));
  std::iota(in.page_table.begin(), in.page_table.end(), 0);
  std::shuffle(in.page_table.begin(), in.page_table.end(), random);
  in.pool.assign(in.page_table.size() * size(layout.page_bytes), 0xff);
  std::vector<bool> made(size(sequences), false);
  for (int row = 0; row < in.rows; ++row) {
    const int sequence = in.sequences[size(row)];
    if (made[size(sequence)]) continue;
    made[size(sequence)] = true;
    const auto first = counts.begin() + row;
    const int keys = *std::max_element(
        first, first + std::min<std::ptrdiff_t>(rows_together, counts.end() - first));
    for (int key = 0; key < keys; ++key) {
      const std::size_t page = entry_at(in, row, key);
      const int place = key % layout.page_entries;
      make_entry(random, key % 11 == 3 ? 1 + static_cast<int>(random() % 6) : 0,
                 std::span(in.pool).subspan(page + size(place * kCodes), kCodes),
                 std::span(in.pool).subspan(
                     page + size(layout.page_entries * kCodes + place * kScales), kScales));
    }
  }
  const std::size_t heads = size(in.rows * layout.heads);
  in.q.resize(heads * kCodes);
  in.q_scales.resize(heads * kScales);
  std::normal_distribution<float> normal;
  for (std::size_t h = 0; h < heads; ++h) {
    make_entry(random, h % 7 == 2 ? 1 + static_cast<int>(random() % 2) : 0,
               std::span(in.q).subspan(h * kCodes, kCodes),
               std::span(in.q_scales).subspan(h * kScales, kScales));
    in.weights.push_back(reference::bf16_bits(0.02F * normal(random)));
  }
  if (in.rows > 1) in.weights.back() = 0x7fc0;
  return in;
}

IndexScores index_scores_reference(const IndexScoreInputs& in, int all_taken) {
  ModelConfig config;
  config.index_heads = in.layout.heads;
  config.index_head_dim = kDims;
  IndexScores result;
  for (int row = 0; row < in.rows; ++row) {
    const int count = in.counts[size(row)];
    if (count <= all_taken) continue;
    std::vector<float> q, weights, magnitudes;
    for (std::size_t h = size(row * in.layout.heads); h < size((row + 1) * in.layout.heads); ++h) {
      const auto head = values_of(std::span(in.q).subspan(h * kCodes, kCodes),
                                  std::span(in.q_scales).subspan(h * kScales, kScales));
      q.insert(q.end(), head.begin(), head.end());
      weights.push_back(reference::bf16_value(in.weights[h]));
      magnitudes.push_back(std::fabs(weights.back()));
    }
    std::vector<std::uint16_t> keys, largest;
    for (int key = 0; key < count; ++key) {
      const std::size_t page = entry_at(in, row, key);
      const int place = key % in.layout.page_entries;
      for (const float value : values_of(
               std::span(in.pool).subspan(page + size(place * kCodes), kCodes),
               std::span(in.pool).subspan(
                   page + size(in.layout.page_entries * kCodes + place * kScales), kScales))) {
        keys.push_back(reference::bf16_bits(value));
        largest.push_back(reference::bf16_bits(std::fabs(value)));
      }
    }
    std::vector<float> scores(size(count));
    reference::index_scores(config, q, weights, keys, scores);
    result.scores.insert(result.scores.end(), scores.begin(), scores.end());
    for (float& value : q)
      value = std::fabs(value);
    reference::index_scores(config, q, magnitudes, largest, scores);
    result.magnitudes.insert(result.magnitudes.end(), scores.begin(), scores.end());
  }
  return result;
}

double index_scores_error(const IndexScoreInputs& in, int all_taken,
                          const std::vector<float>& scores, std::size_t stride, float poison) {
  constexpr double kWrong = std::numeric_limits<double>::infinity();
  const IndexScores expected = index_scores_reference(in, all_taken);
  double worst = 0;
  std::size_t at = 0;
  for (int row = 0; row < in.rows; ++row) {
    const int count = in.counts[size(row)];
    const auto got = std::span(scores).subspan(size(row) * stride, stride);
    const std::size_t scored = count > all_taken ? size(count) : 0;
    for (std::size_t key = 0; key < scored; ++key, ++at) {
      const float want = expected.scores[at];
      if (std::isnan(want) != std::isnan(got[key])) return kWrong;
      if (std::isnan(want)) continue;
      const double error = std::fabs(static_cast<double>(got[key]) - want);
      if (error > 0) worst = std::max(worst, error / static_cast<double>(expected.magnitudes[at]));
    }
    for (std::size_t key = scored; key < stride; ++key)
      if (got[key] != poison) return kWrong;
  }
  return worst;
}

}  // namespace ingot::test
