#include "src/reference/attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "src/reference/kernels.hpp"
#include "src/reference/linear.hpp"
#include "src/reference/numerics.hpp"
#include "src/reference/rms_norm.hpp"

namespace ingot::reference {

void query_latents(ThreadPool& pool, const ModelConfig& config, const AttentionWeights& weights,
                   std::span<const float> x_quantized, std::span<float> qr) {
  linear_bf16(pool, weights.wq_a, x_quantized, qr);
  rms_norm(pool, qr, weights.q_norm, config.rms_norm_eps);
}

void queries(ThreadPool& pool, const ModelConfig& config, const AttentionWeights& weights,
             std::span<const float> qr_quantized, const RopeAngles& angles, std::span<float> q) {
  linear_bf16(pool, weights.wq_b, qr_quantized, q);
  const auto dim = static_cast<std::size_t>(config.head_dim);
  const auto heads = static_cast<std::size_t>(weights.heads());
  const auto rows = static_cast<std::int64_t>(q.size() / (heads * dim));
  pool.parallel_for(rows, 1 + 32768 / static_cast<std::int64_t>(heads * dim),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (auto r = static_cast<std::size_t>(begin);
                           r < static_cast<std::size_t>(end); ++r) {
                        for (std::size_t h = 0; h < heads; ++h) {
                          const auto head = q.subspan((r * heads + h) * dim, dim);
                          head_norm(head, config.rms_norm_eps);
                          angles.rotate(r, head);
                        }
                      }
                    });
}

void kv_entries(ThreadPool& pool, const ModelConfig& config, const AttentionWeights& weights,
                std::span<const float> x_quantized, const RopeAngles& angles, std::span<float> kv) {
  const auto dim = static_cast<std::size_t>(config.head_dim);
  const std::size_t nope = dim - static_cast<std::size_t>(config.rope_dim);
  linear_bf16(pool, weights.wkv, x_quantized, kv);
  rms_norm(pool, kv, weights.kv_norm, config.rms_norm_eps);
  for (std::size_t r = 0; r < kv.size() / dim; ++r) {
    const auto entry = kv.subspan(r * dim, dim);
    angles.rotate(r, entry);
    act_quant(entry.first(nope), kKvGroup);
  }
}

void core_attention(std::span<const float> q, std::span<const float> keys,
                    std::span<const float> sink, int head_dim, std::span<float> o) {
  const auto dim = static_cast<std::size_t>(head_dim);
  const std::size_t heads = sink.size();
  const std::size_t candidates = keys.size() / dim;
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  std::vector<float> weights(heads * candidates);
  std::vector<float> denominators(heads);
  std::vector<const float*> q_rows(heads);
  std::vector<float*> weight_rows(heads);
  for (std::size_t h = 0; h < heads; ++h) {
    q_rows[h] = q.data() + h * dim;
    weight_rows[h] = weights.data() + h * candidates;
  }
  dot_rows(q_rows.data(), static_cast<int>(heads), keys.data(), static_cast<int>(candidates),
           head_dim, weight_rows.data());
  for (std::size_t h = 0; h < heads; ++h) {
    const auto row = std::span(weights).subspan(h * candidates, candidates);
    for (float& w : row)
      w *= scale;
    const float top = *std::max_element(row.begin(), row.end());
    float sum = 0;
    for (float& w : row) {
      const float e = std::exp(w - top);
      sum += e;
      w = bf16_round(e);
    }
    denominators[h] = sum + std::exp(sink[h] - top);
  }
  weighted_sums(weights.data(), static_cast<int>(candidates), static_cast<int>(heads), keys.data(),
                static_cast<int>(candidates), head_dim, o.data());
  for (std::size_t h = 0; h < heads; ++h) {
    for (float& v : o.subspan(h * dim, dim))
      v = bf16_round(v / denominators[h]);
  }
}

void output_projection(ThreadPool& pool, const ModelConfig& config, const AttentionWeights& weights,
                       std::span<const float> o, std::span<float> partial) {
  const int group_rows = config.o_lora_rank;
  const int group_width = weights.wo_a.columns;
  const int groups = weights.wo_a.rows / group_rows;
  const std::size_t rows = partial.size() / static_cast<std::size_t>(config.hidden_size);
  const auto width = static_cast<std::size_t>(weights.wo_a.rows);
  std::vector<float> latent(rows * width);
  const std::int64_t grain = linear_grain(weights.wo_a, static_cast<std::int64_t>(rows));
  // One loop over all groups' output rows; a range may cross from one group into the next.
  pool.parallel_for(weights.wo_a.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<const float*> x(rows);
    std::vector<float*> y(rows);
    for (std::int64_t group = begin / group_rows; group * group_rows < end; ++group) {
      for (std::size_t r = 0; r < rows; ++r) {
        x[r] = o.data() + (static_cast<std::int64_t>(r) * groups + group) * group_width;
        y[r] = latent.data() + r * width;
      }
      linear_rows(weights.wo_a, std::max(begin, group * group_rows),
                  std::min(end, (group + 1) * group_rows), x, y);
    }
  });
  round_bf16(latent);
  linear_f32(pool, weights.wo_b, act_quantized(pool, latent, weights.wo_a.rows), partial);
}

}  // namespace ingot::reference
