#include "tests/support/compress_kv.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <span>

#include "src/reference/compressor.hpp"
#include "src/reference/numerics.hpp"

namespace ingot::test {
namespace {

constexpr std::uint8_t kPoison = 0xee;
constexpr int kRope = 64;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::size_t size(int n) {
  return static_cast<std::size_t>(n);
}

struct Places {
  std::size_t data, scales;
  int data_bytes, scale_bytes;
};
Places places_of(const CompressData& data, int sequence, int entry) {
  const CompressLayout& l = data.layout;
  const std::size_t page =
      size(data.page_table[size(sequence * data.page_stride + entry / l.page_entries)]) *
      size(l.page_bytes);
  const int place = entry % l.page_entries;
  const int data_bytes = l.index_keys ? 64 : 576, scale_bytes = l.index_keys ? 4 : 8;
  const std::size_t at = page + size(place * l.entry_stride);
  return {at,
          l.scales_beside ? at + size(data_bytes)
                          : page + size(l.page_entries * l.entry_stride + place * scale_bytes),
          data_bytes, scale_bytes};
}

}  // namespace

CompressData::CompressData(const CompressLayout& of, std::vector<int> of_lengths,
                           std::uint32_t seed)
    : layout(of), lengths(std::move(of_lengths)) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const std::size_t width = size(layout.width());
  for (std::size_t i = 0; i < size(layout.ratio) * width; ++i)
    ape.push_back(normal(random));
  for (int i = 0; i < layout.dims(); ++i)
    norm.push_back(reference::bf16_bits(1.0F + 0.2F * normal(random)));
  for (int i = 0; i < kRope / 2; ++i)
    frequencies.push_back(1.0F / std::pow(10000.0F, static_cast<float>(i) / 32));
  int longest = 0;
  for (std::size_t n = 0; n < lengths.size(); ++n) {
    longest = std::max(longest, lengths[n]);
    std::vector<float> k, s;
    for (std::size_t i = 0; i < size(lengths[n]) * width; ++i) {
      const auto token = static_cast<int>(i / width);
      k.push_back(n == 1 && token < layout.ratio ? 0.0F : 3.0F * normal(random));
      s.push_back((n == 2 ? 40.0F : 1.0F) * normal(random));
    }
    if (n == 0 && lengths[n] > 2 * layout.ratio) {
      k[size(layout.ratio + 1) * width + 3] = kNan;
      s[size(layout.ratio + 2) * width + width - 1] = kNan;
    }
    k_.push_back(std::move(k));
    s_.push_back(std::move(s));
  }
  page_stride = longest / layout.ratio / layout.page_entries + 1;
  page_table.resize(lengths.size() * size(page_stride));
  std::iota(page_table.begin(), page_table.end(), 1);
  std::shuffle(page_table.begin(), page_table.end(), random);
}

CompressMemory CompressData::memory() const {
  return {std::vector<std::uint8_t>((page_table.size() + 1) * size(layout.page_bytes), kPoison),
          std::vector<float>(lengths.size() * size(layout.state_rows) * size(layout.state_floats()),
                             kNan)};
}

CompressStep CompressData::step(const std::vector<std::pair<int, int>>& ranges,
                                bool garbage) const {
  CompressStep step;
  const std::size_t width = size(layout.width());
  step.sequences = static_cast<int>(ranges.size());
  step.row_stride = layout.width() + 8;
  step.page_stride = page_stride;
  step.row_starts.push_back(0);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  // Sequences of a launch come in another order than their slots.
  for (int n = step.sequences - 1; n >= 0; --n) {
    const auto [first, last] = ranges[size(n)];
    step.slots.push_back(n);
    step.row_starts.push_back(step.row_starts.back() + last - first);
    step.most_tokens = std::max(step.most_tokens, last - first);
    for (int token = first; token < last; ++token) {
      step.positions.push_back(token);
      for (std::size_t c = 0; c < size(step.row_stride); ++c) {
        const std::size_t at = size(token) * width + c;
        step.k.push_back(c >= width ? kNan : garbage ? normal(random) : k_[size(n)][at]);
        step.s.push_back(c >= width ? kNan : garbage ? normal(random) : s_[size(n)][at]);
      }
    }
  }
  return step;
}

CompressData::Difference CompressData::compare(const std::vector<std::uint8_t>& pool) const {
  ModelConfig config;
  config.rope_dim = kRope;
  config.rms_norm_eps = 1e-6F;
  reference::CompressorWeights weights;
  weights.use =
      layout.index_keys ? reference::CompressorUse::indexer : reference::CompressorUse::attention;
  weights.ratio = layout.ratio;
  weights.dim = layout.dims();
  for (const std::uint16_t bits : norm)
    weights.norm.push_back(reference::bf16_value(bits));
  reference::ThreadPool threads(1);
  const int group = layout.index_keys ? 32 : 64;
  const int quantized = layout.index_keys ? 128 : layout.dims() - kRope;

  Difference difference;
  std::size_t elements = 0, differing = 0;
  std::vector<bool> written(pool.size(), false);
  for (int n = 0; n < static_cast<int>(lengths.size()); ++n) {
    std::vector<float> s = s_[size(n)];
    for (std::size_t i = 0; i < s.size(); ++i)
      s[i] += ape[i % ape.size()];
    reference::CompressorState state(weights);
    state.append(threads, config, weights, frequencies, k_[size(n)], s);
    for (int entry = 0; entry < lengths[size(n)] / layout.ratio; ++entry) {
      const Places at = places_of(*this, n, entry);
      std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(at.data), at.data_bytes, true);
      std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(at.scales), at.scale_bytes, true);
      const auto want = state.pool().subspan(size(entry * layout.dims()), size(layout.dims()));
      for (int first = 0; first < layout.dims(); first += group) {
        float largest = 0, largest_code = 0;
        const std::uint8_t scale = pool[at.scales + size(first / group)];
        if (first >= quantized && scale != 0) difference.problem = "padding of the scales";
        for (int i = first; i < first + group; ++i) {
          float code = 0, value = 0;
          if (first >= quantized) {
            std::uint16_t bits = 0;
            std::memcpy(&bits, &pool[at.data + size(quantized + 2 * (i - quantized))], 2);
            value = reference::bf16_value(bits);
          } else {
            code = layout.index_keys ? reference::e2m1_value(static_cast<std::uint8_t>(
                                           pool[at.data + size(i / 2)] >> (4 * (i % 2)) & 15))
                                     : reference::e4m3_value(pool[at.data + size(i)]);
            value = code * reference::e8m0_value(scale);
          }
          const float expected = reference::bf16_value(want[size(i)]);
          ++elements;
          if (std::isnan(expected) != std::isnan(value)) difference.problem = "NaN elsewhere";
          if (std::isnan(expected) || std::isnan(value)) continue;
          largest = std::max(largest, std::fabs(expected));
          largest_code = std::max(largest_code, std::fabs(code));
          if (value == expected) continue;
          ++differing;
          const float magnitude = std::max(std::fabs(value), std::fabs(expected));
          // A step between neighbours, or, of small values, the format's least step.
          const float relative = first >= quantized ? 0x1p-6F : layout.index_keys ? 0.51F : 0.26F;
          const float least = first >= quantized  ? 0x1p-10F
                              : layout.index_keys ? reference::e8m0_value(scale)
                                                  : 0x1p-8F * reference::e8m0_value(scale);
          if (std::fabs(value - expected) > relative * magnitude + least)
            difference.beyond_step = true;
        }
        // Half of the format's largest, unless the scale is the quantiser's floor.
        const float at_least = layout.index_keys ? 3.0F : 224.0F;
        const bool floor = layout.index_keys ? scale == 1 : scale == 127 - 22;
        if (first < quantized && largest > 0 && !floor && largest_code < at_least)
          difference.problem = "a scale larger than it must be";
      }
    }
  }
  difference.share = static_cast<double>(differing) / static_cast<double>(elements);
  for (std::size_t i = 0; i < pool.size(); ++i)
    if (!written[i] && pool[i] != kPoison) difference.problem = "bytes outside of the entries";
  return difference;
}

CompressMemory compress_in_chunks(const CompressData& data, const CompressLaunch& launch,
                                  const std::function<int(int step)>& chunk) {
  CompressMemory memory = data.memory();
  std::vector<int> done(data.lengths.size(), 0);
  for (int step = 0; done != data.lengths; ++step) {
    std::vector<std::pair<int, int>> ranges;
    for (std::size_t n = 0; n < done.size(); ++n) {
      const int next = std::min(done[n] + chunk(step), data.lengths[n]);
      ranges.emplace_back(done[n], next);
      done[n] = next;
    }
    launch(data, data.step(ranges), memory);
  }
  return memory;
}

CompressMemory compress_with_rollbacks(const CompressData& data, const CompressLaunch& launch) {
  CompressMemory memory = data.memory();
  const int drop = data.layout.state_rows - (data.layout.ratio == 4 ? 7 : 1);
  const int longest = *std::max_element(data.lengths.begin(), data.lengths.end());
  for (int token = 0; token < longest; ++token) {
    std::vector<std::pair<int, int>> ranges, drafts;
    for (const int length : data.lengths) {
      const int at = std::min(token, length);
      ranges.emplace_back(at, std::min(at + 1, length));
      // Drafts stay within the sequence's pages: what they append is written again later.
      drafts.emplace_back(at, std::min(at + drop, length / data.layout.ratio * data.layout.ratio));
      if (drafts.back().second < at) drafts.back().second = at;
    }
    if (token % 4 == 0) launch(data, data.step(drafts, true), memory);
    launch(data, data.step(ranges), memory);
  }
  return memory;
}

}  // namespace ingot::test
