#include "src/reference/compressor.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "src/reference/linear.hpp"
#include "src/reference/numerics.hpp"
#include "src/reference/rms_norm.hpp"
#include "src/reference/rope.hpp"

namespace ingot::reference {
namespace {

/// Per-channel softmax over the rows of S, and the sum of K by its weights.
/// @param channel  first channel of each row
void pool_rows(std::span<const float* const> k, std::span<const float* const> s,
               std::span<const std::size_t> channel, std::span<float> pooled) {
  std::vector<float> weight(k.size());
  for (std::size_t c = 0; c < pooled.size(); ++c) {
    float top = -std::numeric_limits<float>::infinity();
    for (std::size_t r = 0; r < k.size(); ++r)
      top = std::max(top, s[r][channel[r] + c]);
    float sum = 0;
    for (std::size_t r = 0; r < k.size(); ++r) {
      weight[r] = std::exp(s[r][channel[r] + c] - top);
      sum += weight[r];
    }
    float value = 0;
    for (std::size_t r = 0; r < k.size(); ++r) {
      value += k[r][channel[r] + c] * (weight[r] / sum);
    }
    pooled[c] = value;
  }
}

}  // namespace

void hadamard(std::span<float> x) {
  for (std::size_t half = 1; half < x.size(); half *= 2) {
    for (std::size_t i = 0; i < x.size(); i += 2 * half) {
      for (std::size_t j = i; j < i + half; ++j) {
        const float a = x[j];
        const float b = x[j + half];
        x[j] = a + b;
        x[j + half] = a - b;
      }
    }
  }
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(x.size())));
  for (float& v : x)
    v = bf16_round(v * scale);
}

void compressor_rows(ThreadPool& pool, const CompressorWeights& weights, std::span<const float> x,
                     std::span<const std::int64_t> positions, std::span<float> k,
                     std::span<float> s) {
  linear_f32(pool, weights.wkv, x, k);
  linear_f32(pool, weights.wgate, x, s);
  const auto width = static_cast<std::size_t>(weights.row_width());
  for (std::size_t r = 0; r < positions.size(); ++r) {
    const auto offset = static_cast<std::size_t>(positions[r] % weights.ratio);
    for (std::size_t c = 0; c < width; ++c)
      s[r * width + c] += weights.ape[offset * width + c];
  }
}

void compress_block(const ModelConfig& config, const CompressorWeights& weights,
                    std::span<const float> frequencies, std::int64_t block,
                    std::span<const float* const> k, std::span<const float* const> s,
                    std::span<float> entry) {
  std::vector<std::size_t> channel(k.size(), 0);
  if (weights.ratio == 4) {  // half B of the block's own tokens, half A of those before
    std::fill(channel.end() - 4, channel.end(), static_cast<std::size_t>(weights.dim));
  }
  pool_rows(k, s, channel, entry);
  for (float& v : entry)
    v = bf16_round(v);
  rms_norm_row(entry, weights.norm, config.rms_norm_eps, entry);
  const std::int64_t position = block * weights.ratio;
  RopeAngles(frequencies, {&position, 1}).rotate(0, entry);
  if (weights.use == CompressorUse::indexer) {
    hadamard(entry);
    fp4_quant(entry);
  } else {
    act_quant(entry.first(entry.size() - static_cast<std::size_t>(config.rope_dim)), kKvGroup);
  }
}

CompressorState::CompressorState(const CompressorWeights& weights)
    : ratio_(weights.ratio), dim_(weights.dim), k_(weights.row_width()), s_(weights.row_width()) {}

std::int64_t CompressorState::entries() const {
  return dim_ == 0 ? 0 : static_cast<std::int64_t>(pool_.size()) / dim_;
}

std::int64_t CompressorState::first_needed(std::int64_t length) const {
  const std::int64_t block_start = length / ratio_ * ratio_;
  return ratio_ == 4 ? std::max<std::int64_t>(0, block_start - 4) : block_start;
}

void CompressorState::append(ThreadPool& threads, const ModelConfig& config,
                             const CompressorWeights& weights, std::span<const float> frequencies,
                             std::span<const float> k, std::span<const float> s) {
  const auto tokens = static_cast<std::int64_t>(k.size()) / weights.row_width();
  std::ranges::copy(k, k_.append(tokens).begin());
  std::ranges::copy(s, s_.append(tokens).begin());
  const std::int64_t first = entries();
  const std::int64_t last = k_.end() / ratio_;
  const auto dim = static_cast<std::size_t>(dim_);
  pool_.resize(static_cast<std::size_t>(last) * dim);
  threads.parallel_for(
      last - first, 1 + 16384 / (dim_ * weights.pooled_rows()),
      [&](std::int64_t begin, std::int64_t end) {
        std::vector<float> entry(dim);
        std::vector<const float*> k_rows;
        std::vector<const float*> s_rows;
        for (std::int64_t block = first + begin; block < first + end; ++block) {
          k_rows.clear();
          s_rows.clear();
          const std::int64_t after = (block + 1) * ratio_;
          const std::int64_t oldest = std::max<std::int64_t>(0, after - weights.pooled_rows());
          for (std::int64_t position = oldest; position < after; ++position) {
            k_rows.push_back(k_.row(position));
            s_rows.push_back(s_.row(position));
          }
          compress_block(config, weights, frequencies, block, k_rows, s_rows, entry);
          std::ranges::transform(entry, pool_.begin() + block * dim_, bf16_bits);
        }
      });
}

void CompressorState::rollback(std::int64_t length) {
  if (ratio_ == 0) return;
  k_.truncate(length);
  s_.truncate(length);
  const auto kept = static_cast<std::size_t>(length / ratio_ * dim_);
  pool_.resize(std::min(pool_.size(), kept));
}

void CompressorState::forget_before(std::int64_t length) {
  if (ratio_ == 0 || length <= 0) return;
  k_.forget_before(first_needed(length));
  s_.forget_before(first_needed(length));
}

void CompressorState::write(ByteWriter& out) const {
  k_.write(out);
  s_.write(out);
  out.text({reinterpret_cast<const char*>(pool_.data()), pool_.size() * sizeof(std::uint16_t)});
}

bool CompressorState::read(ByteReader& in, std::int64_t length, std::int64_t shortest) {
  if (ratio_ == 0) length = 0;
  const std::int64_t needed = ratio_ == 0 ? 0 : first_needed(std::max<std::int64_t>(0, shortest));
  if (!k_.read(in, needed, length) || !s_.read(in, needed, length)) return false;
  const std::string_view pool = in.text();
  const std::int64_t values = ratio_ == 0 ? 0 : length / ratio_ * dim_;
  if (!in.ok() || pool.size() != static_cast<std::size_t>(values) * sizeof(std::uint16_t)) {
    return false;
  }
  assign_values(pool_, pool);
  return true;
}

bool CompressorState::same_as(const CompressorState& other, std::int64_t length) const {
  if (pool_ != other.pool_ || k_.end() != other.k_.end()) return false;
  if (ratio_ == 0) return true;
  const std::int64_t from = std::min(first_needed(std::max<std::int64_t>(0, length)), k_.end());
  return std::ranges::equal(k_.rows(from, k_.end()), other.k_.rows(from, k_.end())) &&
         std::ranges::equal(s_.rows(from, s_.end()), other.s_.rows(from, s_.end()));
}

}  // namespace ingot::reference
