#include "src/reference/hyper_connection.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "src/reference/kernels.hpp"
#include "src/reference/linear.hpp"
#include "src/reference/rms_norm.hpp"

namespace ingot::reference {
namespace {

float sigmoid(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}

/// m = (fn · x) · inverse_rms(x), [rows, fn.rows] fp32; x is all streams of a row.
std::vector<float> mixes(ThreadPool& pool, const ModelConfig& config, const WeightMatrix& fn,
                         std::span<const float> streams) {
  const auto width = static_cast<std::size_t>(fn.columns);
  const auto outputs = static_cast<std::size_t>(fn.rows);
  const std::size_t rows = streams.size() / width;
  std::vector<float> m(rows * outputs);
  linear_f32(pool, fn, streams, m);
  for (std::size_t r = 0; r < rows; ++r) {
    const float scale = inverse_rms(streams.subspan(r * width, width), config.rms_norm_eps);
    for (std::size_t i = 0; i < outputs; ++i)
      m[r * outputs + i] *= scale;
  }
  return m;
}

void divide_rows(std::span<float> c, std::size_t hc, float eps) {
  for (std::size_t j = 0; j < hc; ++j) {
    float sum = 0;
    for (std::size_t k = 0; k < hc; ++k)
      sum += c[j * hc + k];
    for (std::size_t k = 0; k < hc; ++k)
      c[j * hc + k] /= sum + eps;
  }
}

void divide_columns(std::span<float> c, std::size_t hc, float eps) {
  for (std::size_t k = 0; k < hc; ++k) {
    float sum = 0;
    for (std::size_t j = 0; j < hc; ++j)
      sum += c[j * hc + k];
    for (std::size_t j = 0; j < hc; ++j)
      c[j * hc + k] /= sum + eps;
  }
}

/// Row softmax + eps, a column division, then (row, column) divisions: `iterations` of each kind
/// in all, the softmax being the first of the rows.
void sinkhorn(std::span<float> c, std::size_t hc, int iterations, float eps) {
  for (std::size_t j = 0; j < hc; ++j) {
    const auto row = c.subspan(j * hc, hc);
    const float top = *std::max_element(row.begin(), row.end());
    for (float& v : row)
      v = std::exp(v - top);
    float sum = 0;
    for (const float v : row)
      sum += v;
    for (float& v : row)
      v = v / sum + eps;
  }
  divide_columns(c, hc, eps);
  for (int i = 1; i < iterations; ++i) {
    divide_rows(c, hc, eps);
    divide_columns(c, hc, eps);
  }
}

/// Rows whose elementwise work is worth a thread.
std::int64_t row_grain(const ModelConfig& config) {
  return 1 + 65536 / (config.hc_mult * config.hidden_size);
}

}  // namespace

HyperMix hyper_mix(ThreadPool& pool, const ModelConfig& config,
                   const HyperConnectionWeights& weights, std::span<const float> streams) {
  const auto hc = static_cast<std::size_t>(config.hc_mult);
  const auto outputs = static_cast<std::size_t>(weights.fn.rows);
  const std::vector<float> m = mixes(pool, config, weights.fn, streams);
  const std::size_t rows = m.size() / outputs;
  HyperMix mix;
  mix.pre.resize(rows * hc);
  mix.post.resize(rows * hc);
  mix.comb.resize(rows * hc * hc);
  const std::span<const float> base = weights.base;
  for (std::size_t r = 0; r < rows; ++r) {
    const float* row = &m[r * outputs];
    for (std::size_t i = 0; i < hc; ++i) {
      mix.pre[r * hc + i] = sigmoid(row[i] * weights.scale[0] + base[i]) + config.hc_eps;
      mix.post[r * hc + i] = 2 * sigmoid(row[hc + i] * weights.scale[1] + base[hc + i]);
    }
    const auto comb = std::span(mix.comb).subspan(r * hc * hc, hc * hc);
    for (std::size_t i = 0; i < hc * hc; ++i) {
      comb[i] = row[2 * hc + i] * weights.scale[2] + base[2 * hc + i];
    }
    sinkhorn(comb, hc, config.hc_sinkhorn_iters, config.hc_eps);
  }
  return mix;
}

void hyper_collapse(ThreadPool& pool, const ModelConfig& config, std::span<const float> pre,
                    std::span<const float> streams, std::span<float> input) {
  const int hc = config.hc_mult;
  const int width = config.hidden_size;
  const auto rows = static_cast<std::int64_t>(input.size()) / width;
  pool.parallel_for(rows, row_grain(config), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      weighted_sums(pre.data() + r * hc, hc, 1, streams.data() + r * hc * width, hc, width,
                    input.data() + r * width);
      round_bf16({input.data() + r * width, static_cast<std::size_t>(width)});
    }
  });
}

void hyper_expand(ThreadPool& pool, const ModelConfig& config, const HyperMix& mix,
                  std::span<const float> output, std::span<float> streams) {
  const int hc = config.hc_mult;
  const int width = config.hidden_size;
  const auto rows = static_cast<std::int64_t>(output.size()) / width;
  pool.parallel_for(rows, row_grain(config), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> destination_major(static_cast<std::size_t>(hc * hc));
    std::vector<float> mixed(static_cast<std::size_t>(hc * width));
    for (std::int64_t r = begin; r < end; ++r) {
      const float* comb = mix.comb.data() + r * hc * hc;
      for (int j = 0; j < hc; ++j) {
        for (int k = 0; k < hc; ++k) {
          destination_major[static_cast<std::size_t>(k * hc + j)] = comb[j * hc + k];
        }
      }
      float* x = streams.data() + r * hc * width;
      weighted_sums(destination_major.data(), hc, hc, x, hc, width, mixed.data());
      for (int k = 0; k < hc; ++k) {
        add_scaled_bf16(output.data() + r * width, mix.post[static_cast<std::size_t>(r * hc + k)],
                        mixed.data() + k * width, width, x + k * width);
      }
    }
  });
}

void hyper_head(ThreadPool& pool, const ModelConfig& config, const HyperConnectionWeights& weights,
                std::span<const float> streams, std::span<float> output) {
  const std::vector<float> m = mixes(pool, config, weights.fn, streams);
  const auto hc = static_cast<std::size_t>(config.hc_mult);
  std::vector<float> pre(m.size());
  for (std::size_t i = 0; i < m.size(); ++i) {
    pre[i] = sigmoid(m[i] * weights.scale[0] + weights.base[i % hc]) + config.hc_eps;
  }
  hyper_collapse(pool, config, pre, streams, output);
}

}  // namespace ingot::reference
