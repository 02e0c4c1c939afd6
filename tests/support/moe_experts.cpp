#include "tests/support/moe_experts.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <thread>

#include "kernel_templates/moe_weight_tiles.hpp"
#include "src/reference/kernels.hpp"
#include "src/reference/linear.hpp"
#include "src/reference/moe.hpp"
#include "src/reference/numerics.hpp"

namespace ingot::test {
namespace {

constexpr float kLimit = 10;

std::vector<std::byte> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes((count + 7) / 8 * 8);
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t bits = random();
    std::memcpy(&bytes[i], &bits, 8);
  }
  bytes.resize(count);
  return bytes;
}
/// Scales around 2^-6 of weights that `columns` products are summed of.
std::vector<std::byte> random_scales(std::size_t count, int columns, int spread, unsigned seed) {
  std::mt19937 random(seed);
  const int largest = 127 - static_cast<int>(std::log2(columns)) / 2 - 1;
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes)
    byte = static_cast<std::byte>(
        largest - static_cast<int>(random() % static_cast<unsigned>(std::max(spread, 1))));
  return bytes;
}
std::size_t size(int a, int b) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
}

reference::WeightMatrix matrix_of(const std::vector<std::byte>& codes,
                                  const std::vector<std::byte>& scales, int expert, int rows,
                                  int columns) {
  const std::size_t elements = size(rows, columns) * static_cast<std::size_t>(expert);
  return {.format = reference::WeightFormat::fp4,
          .data = &codes[elements / 2],
          .scales = reinterpret_cast<const std::uint8_t*>(&scales[elements / 32]),
          .stored_columns = columns,
          .scale_columns = columns / 32,
          .rows = rows,
          .columns = columns};
}

}  // namespace

MoeExperts random_moe(const MoeShape& shape, MoeRouting routing, int scale_spread, unsigned seed) {
  MoeExperts moe;
  moe.shape = shape;
  const std::size_t weights =
      size(shape.inter, shape.hidden) * static_cast<std::size_t>(shape.experts);
  unsigned part = seed * 16;
  for (auto* codes : {&moe.gate, &moe.up, &moe.down})
    *codes = random_bytes(weights / 2, part++);
  moe.gate_scales = random_scales(weights / 32, shape.hidden, scale_spread, part++);
  moe.up_scales = random_scales(weights / 32, shape.hidden, scale_spread, part++);
  moe.down_scales = random_scales(weights / 32, shape.inter, scale_spread, part++);

  std::mt19937 random(part);
  std::normal_distribution<float> normal;
  const auto hidden = static_cast<std::size_t>(shape.hidden);
  const auto tokens = static_cast<std::size_t>(shape.tokens);
  const auto topk = static_cast<std::size_t>(shape.topk);
  moe.x.resize(tokens * hidden);
  for (std::size_t group = 0; group < moe.x.size() / 128; ++group) {
    const float magnitude = std::ldexp(1.0F, static_cast<int>(random() % 5) - 2);
    for (std::size_t i = 0; i < 128; ++i)
      moe.x[group * 128 + i] = reference::bf16_round(normal(random) * magnitude);
  }
  moe.codes.resize(moe.x.size());
  std::vector<std::uint8_t> exponents(moe.x.size() / 128);
  reference::act_quant_bytes(moe.x, 128, moe.codes, exponents);
  for (const auto exponent : exponents)
    moe.scales.push_back(reference::e8m0_value(exponent));
  reference::act_quant(moe.x, 128);

  for (std::size_t t = 0; t < tokens; ++t) {
    std::vector<int> all(static_cast<std::size_t>(shape.experts));
    std::iota(all.begin(), all.end(), 0);
    if (routing == MoeRouting::leave_out) all.erase(all.begin(), all.begin() + shape.experts / 2);
    if (routing != MoeRouting::same) std::shuffle(all.begin(), all.end(), random);
    if (routing == MoeRouting::first_full) {
      std::iter_swap(std::find(all.begin(), all.end(), 0),
                     all.begin() + static_cast<int>(t % topk));
    }
    float sum = 0;
    for (std::size_t i = 0; i < topk; ++i) {
      // The same ones, each token in another order.
      moe.ids.push_back(routing == MoeRouting::same ? all[((i + t) % topk) * 5] : all[i]);
      moe.weights.push_back(0.2F + static_cast<float>(random() % 1000) / 1000.0F);
      sum += moe.weights.back();
    }
    for (std::size_t i = 0; i < topk; ++i)
      moe.weights[t * topk + i] *= 1.5F / sum;
  }
  return moe;
}

void poison(MoeExperts& moe, int token, int column) {
  const std::size_t at = size(token, moe.shape.hidden) + static_cast<std::size_t>(column);
  moe.x[at] = std::numeric_limits<float>::quiet_NaN();
  moe.codes[at] = 0x7f;
  moe.scales[at / 128] = std::numeric_limits<float>::quiet_NaN();
}

std::vector<std::byte> MoeExperts::gate_up_jobs() const {
  const std::size_t each = kernels::moe_tile_bytes(2 * shape.inter, shape.hidden);
  std::vector<std::byte> jobs(each * static_cast<std::size_t>(shape.experts));
  for (std::size_t e = 0; e < static_cast<std::size_t>(shape.experts); ++e) {
    const std::size_t first = e * size(shape.inter, shape.hidden);
    const auto at = [&](const std::vector<std::byte>& stored, const std::vector<std::byte>& scale) {
      return kernels::Fp4Matrix{.codes = &stored[first / 2],
                                .scales = &scale[first / 32],
                                .code_stride = shape.hidden / 2,
                                .scale_stride = shape.hidden / 32};
    };
    kernels::pack_moe_gate_up(at(gate, gate_scales), at(up, up_scales), shape.inter, shape.hidden,
                              std::span(jobs).subspan(e * each, each));
  }
  return jobs;
}

std::vector<std::byte> MoeExperts::down_jobs() const {
  const std::size_t each = kernels::moe_tile_bytes(shape.hidden, shape.inter);
  std::vector<std::byte> jobs(each * static_cast<std::size_t>(shape.experts));
  for (std::size_t e = 0; e < static_cast<std::size_t>(shape.experts); ++e) {
    const std::size_t first = e * size(shape.inter, shape.hidden);
    kernels::pack_moe_down({.codes = &down[first / 2],
                            .scales = &down_scales[first / 32],
                            .code_stride = shape.inter / 2,
                            .scale_stride = shape.inter / 32},
                           shape.hidden, shape.inter, std::span(jobs).subspan(e * each, each));
  }
  return jobs;
}

std::vector<float> MoeExperts::reference(bool round_experts) const {
  reference::ThreadPool pool(
      static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 16U)));
  ModelConfig config;
  config.hidden_size = shape.hidden;
  config.experts_per_token = shape.topk;
  config.swiglu_limit = kLimit;
  reference::MoeWeights all;
  for (int e = 0; e < shape.experts; ++e)
    all.experts.push_back({.w1 = matrix_of(gate, gate_scales, e, shape.inter, shape.hidden),
                           .w2 = matrix_of(down, down_scales, e, shape.hidden, shape.inter),
                           .w3 = matrix_of(up, up_scales, e, shape.inter, shape.hidden)});
  all.shared = all.experts.front();  // its outputs are not looked at
  const auto topk = static_cast<std::size_t>(shape.topk);
  const auto hidden = static_cast<std::size_t>(shape.hidden);
  std::vector<float> outputs(static_cast<std::size_t>(shape.tokens) * (topk + 1) * hidden);
  reference::expert_outputs(pool, config, all, {ids, weights}, x, outputs);
  std::vector<float> sums(x.size(), 0.0F);
  for (std::size_t t = 0; t < static_cast<std::size_t>(shape.tokens); ++t) {
    std::vector<std::size_t> order(topk);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return ids[t * topk + a] < ids[t * topk + b]; });
    for (const std::size_t i : order)
      for (std::size_t c = 0; c < hidden; ++c) {
        const float value = outputs[(t * (topk + 1) + i) * hidden + c];
        sums[t * hidden + c] += round_experts ? reference::bf16_round(value) : value;
      }
  }
  return sums;
}

namespace {

/// y of every pair (token, expert) = weight of the expert times the pair's x, [pairs, rows].
template <class MatrixOf, class InputOf>
std::vector<float> pair_linear(const std::vector<int>& ids, int experts, int rows,
                               const MatrixOf& matrix, const InputOf& input) {
  std::vector<float> y(ids.size() * static_cast<std::size_t>(rows));
  reference::ThreadPool pool(
      static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 16U)));
  pool.parallel_for(experts, 1, [&](std::int64_t first, std::int64_t last) {
    for (auto e = static_cast<int>(first); e < last; ++e) {
      std::vector<const float*> x_rows;
      std::vector<float*> y_rows;
      for (std::size_t pair = 0; pair < ids.size(); ++pair) {
        if (ids[pair] != e) continue;
        x_rows.push_back(input(pair));
        y_rows.push_back(&y[pair * static_cast<std::size_t>(rows)]);
      }
      if (!x_rows.empty()) reference::linear_rows(matrix(e), 0, rows, x_rows, y_rows);
    }
  });
  return y;
}

}  // namespace

std::vector<float> MoeExperts::reference_activations() const {
  const auto topk = static_cast<std::size_t>(shape.topk);
  const auto hidden = static_cast<std::size_t>(shape.hidden);
  const auto inter = static_cast<std::size_t>(shape.inter);
  const auto product = [&](const std::vector<std::byte>& fp4,
                           const std::vector<std::byte>& fp4_scales) {
    return pair_linear(
        ids, shape.experts, shape.inter,
        [&](int e) { return matrix_of(fp4, fp4_scales, e, shape.inter, shape.hidden); },
        [&](std::size_t pair) { return &x[pair / topk * hidden]; });
  };
  auto activations = product(gate, gate_scales);
  const auto upper = product(up, up_scales);
  for (std::size_t pair = 0; pair < ids.size(); ++pair)
    reference::expert_activation(std::span(activations).subspan(pair * inter, inter),
                                 std::span(upper).subspan(pair * inter, inter), kLimit,
                                 weights[pair]);
  return activations;
}

std::vector<float> MoeExperts::reference_sums(const std::vector<float>& activations,
                                              bool round_experts) const {
  const auto topk = static_cast<std::size_t>(shape.topk);
  const auto hidden = static_cast<std::size_t>(shape.hidden);
  const auto outputs = pair_linear(
      ids, shape.experts, shape.hidden,
      [&](int e) { return matrix_of(down, down_scales, e, shape.hidden, shape.inter); },
      [&](std::size_t pair) { return &activations[pair * static_cast<std::size_t>(shape.inter)]; });
  std::vector<float> sums(x.size(), 0.0F);
  for (std::size_t t = 0; t < static_cast<std::size_t>(shape.tokens); ++t) {
    std::vector<std::size_t> pairs(topk);
    std::iota(pairs.begin(), pairs.end(), t * topk);
    std::sort(pairs.begin(), pairs.end(),
              [&](std::size_t a, std::size_t b) { return ids[a] < ids[b]; });
    for (const std::size_t pair : pairs)
      for (std::size_t c = 0; c < hidden; ++c) {
        const float value = outputs[pair * hidden + c];
        sums[t * hidden + c] += round_experts ? reference::bf16_round(value) : value;
      }
  }
  return sums;
}

MoeDifference compare_moe(const std::vector<float>& got, const std::vector<float>& expected,
                          int hidden) {
  MoeDifference difference;
  double error = 0, norm = 0;
  const auto width = static_cast<std::size_t>(hidden);
  for (std::size_t row = 0; row < expected.size() / width; ++row) {
    double row_error = 0, row_norm = 0;
    bool nan = false;
    for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
      difference.nan_differs |= std::isnan(got[i]) != std::isnan(expected[i]);
      nan |= std::isnan(expected[i]);
      row_error += std::pow(static_cast<double>(got[i]) - expected[i], 2);
      row_norm += std::pow(static_cast<double>(expected[i]), 2);
    }
    if (nan || row_norm == 0) continue;
    error += row_error;
    norm += row_norm;
    difference.worst_row = std::max(difference.worst_row, std::sqrt(row_error / row_norm));
  }
  difference.relative = norm == 0 ? 0 : std::sqrt(error / norm);
  return difference;
}

}  // namespace ingot::test
