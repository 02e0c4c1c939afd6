#include "src/reference/indexer.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "src/reference/kernels.hpp"
#include "src/reference/linear.hpp"
#include "src/reference/numerics.hpp"

namespace ingot::reference {

void index_queries(ThreadPool& pool, const ModelConfig& config, const IndexerWeights& weights,
                   std::span<const float> qr_quantized, std::span<const float> x,
                   const RopeAngles& angles, std::span<float> q, std::span<float> head_weights) {
  const auto heads = static_cast<std::size_t>(config.index_heads);
  const auto dim = static_cast<std::size_t>(config.index_head_dim);
  linear_bf16(pool, weights.wq_b, qr_quantized, q);
  const auto rows = static_cast<std::int64_t>(q.size() / (heads * dim));
  pool.parallel_for(rows, 1 + 8192 / static_cast<std::int64_t>(heads * dim),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (auto r = static_cast<std::size_t>(begin);
                           r < static_cast<std::size_t>(end); ++r) {
                        for (std::size_t h = 0; h < heads; ++h) {
                          const auto head = q.subspan((r * heads + h) * dim, dim);
                          angles.rotate(r, head);
                          hadamard(head);
                          fp4_quant(head);
                        }
                      }
                    });
  linear_bf16(pool, weights.weights_proj, x, head_weights);
  // One factor, rounded to fp32 once, as the official code passes it.
  const auto scale = static_cast<float>(std::pow(config.index_head_dim, -0.5) *
                                        std::pow(config.index_heads, -0.5));
  for (float& w : head_weights)
    w = bf16_round(w * scale);
}

void index_scores(const ModelConfig& config, std::span<const float> q,
                  std::span<const float> head_weights, std::span<const std::uint16_t> keys,
                  std::span<float> scores) {
  constexpr std::size_t kTileKeys = 64;
  const auto heads = static_cast<std::size_t>(config.index_heads);
  const auto dim = static_cast<std::size_t>(config.index_head_dim);
  std::vector<float> tile(kTileKeys * dim);
  std::vector<float> products(heads * kTileKeys);
  std::vector<const float*> q_rows(heads);
  std::vector<float*> product_rows(heads);
  for (std::size_t h = 0; h < heads; ++h) {
    q_rows[h] = q.data() + h * dim;
    product_rows[h] = products.data() + h * kTileKeys;
  }
  for (std::size_t first = 0; first < scores.size(); first += kTileKeys) {
    const std::size_t count = std::min(kTileKeys, scores.size() - first);
    convert_bf16(keys.data() + first * dim, static_cast<int>(count * dim), tile.data());
    dot_rows(q_rows.data(), config.index_heads, tile.data(), static_cast<int>(count),
             config.index_head_dim, product_rows.data());
    weighted_relu_sums(products.data(), static_cast<int>(kTileKeys), head_weights.data(),
                       config.index_heads, static_cast<int>(count), &scores[first]);
  }
}

std::vector<int> top_indices(std::span<const float> values, int count) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  if (static_cast<std::size_t>(count) >= order.size()) return order;
  const auto key = [&](int i) {
    const float v = values[static_cast<std::size_t>(i)];
    return v != v ? -std::numeric_limits<float>::infinity() : v;
  };
  std::nth_element(order.begin(), order.begin() + count, order.end(), [&](int a, int b) {
    const float va = key(a);
    const float vb = key(b);
    return va != vb ? va > vb : a < b;
  });
  order.resize(static_cast<std::size_t>(count));
  std::ranges::sort(order);
  return order;
}

}  // namespace ingot::reference
