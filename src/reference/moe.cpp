#include "src/reference/moe.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "src/reference/kernels.hpp"
#include "src/reference/linear.hpp"
#include "src/reference/numerics.hpp"

namespace ingot::reference {
namespace {

/// sqrt(softplus(z)), in the form that neither overflows nor cancels.
float router_score(float z) {
  return std::sqrt(std::max(z, 0.0F) + std::log1p(std::exp(-std::fabs(z))));
}

/// The `count` best of score + bias, best first.
void choose_best(std::span<const float> scores, std::span<const float> bias, std::span<int> best) {
  std::vector<float> keys(scores.size());
  for (std::size_t e = 0; e < keys.size(); ++e) {
    const float key = scores[e] + bias[e];
    keys[e] = key != key ? -std::numeric_limits<float>::infinity() : key;
  }
  std::vector<int> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(best.size()),
                    order.end(), [&](int a, int b) {
                      const float ka = keys[static_cast<std::size_t>(a)];
                      const float kb = keys[static_cast<std::size_t>(b)];
                      return ka != kb ? ka > kb : a < b;
                    });
  std::copy_n(order.begin(), best.size(), best.begin());
}

/// The rows of one expert (or of the shared expert), as slots of [rows, experts_per_token + 1].
struct ExpertRows {
  const ExpertWeights* weights;
  std::vector<std::size_t> slots;
};

/// Experts that at least one row chose, ascending, and the shared expert.
std::vector<ExpertRows> rows_by_expert(const MoeWeights& weights, const Routing& routing,
                                       std::size_t rows, std::size_t chosen) {
  std::vector<std::vector<std::size_t>> slots(weights.experts.size());
  ExpertRows shared{&weights.shared, {}};
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t i = 0; i < chosen; ++i) {
      slots[static_cast<std::size_t>(routing.experts[r * chosen + i])].push_back(r * (chosen + 1) +
                                                                                 i);
    }
    shared.slots.push_back(r * (chosen + 1) + chosen);
  }
  std::vector<ExpertRows> by_expert;
  for (std::size_t e = 0; e < slots.size(); ++e) {
    if (!slots[e].empty()) by_expert.push_back({&weights.experts[e], std::move(slots[e])});
  }
  by_expert.push_back(std::move(shared));
  return by_expert;
}

/// One linear of every expert, as one loop over tasks of some output rows of one expert.
/// @param weight  the linear's weight of an expert
/// @param x       row of the slot, [weight.columns]
/// @param y       row of the slot, [weight.rows]
template <class Weight, class Input, class Output>
void expert_linear(ThreadPool& pool, std::span<const ExpertRows> experts, const Weight& weight,
                   const Input& x, const Output& y) {
  struct Task {
    const ExpertRows* expert;
    std::int64_t begin, end;
  };
  std::vector<Task> tasks;
  std::int64_t work = 0;
  for (const ExpertRows& expert : experts) {
    const WeightMatrix& matrix = weight(*expert.weights);
    const auto rows = static_cast<std::int64_t>(expert.slots.size());
    const std::int64_t grain = linear_grain(matrix, rows);
    work += linear_work(matrix, rows);
    for (std::int64_t begin = 0; begin < matrix.rows; begin += grain) {
      tasks.push_back({&expert, begin, std::min<std::int64_t>(begin + grain, matrix.rows)});
    }
  }
  // Small experts make small tasks: hand out as many at once as are worth a thread.
  const auto count = static_cast<std::int64_t>(tasks.size());
  pool.parallel_for(count, std::max<std::int64_t>(1, count * kThreadWork / work),
                    [&](std::int64_t first, std::int64_t last) {
                      std::vector<const float*> x_rows;
                      std::vector<float*> y_rows;
                      for (std::int64_t t = first; t < last; ++t) {
                        const Task& task = tasks[static_cast<std::size_t>(t)];
                        x_rows.clear();
                        y_rows.clear();
                        for (const std::size_t slot : task.expert->slots) {
                          x_rows.push_back(x(slot));
                          y_rows.push_back(y(slot));
                        }
                        linear_rows(weight(*task.expert->weights), task.begin, task.end, x_rows,
                                    y_rows);
                      }
                    });
}

}  // namespace

Routing route(ThreadPool& pool, const ModelConfig& config, const MoeWeights& weights,
              std::span<const float> z, std::span<const TokenId> tokens) {
  const auto experts = static_cast<std::size_t>(config.num_experts);
  const auto chosen = static_cast<std::size_t>(config.experts_per_token);
  std::vector<float> scores(tokens.size() * experts);
  linear_f32(pool, weights.gate, z, scores);
  for (float& s : scores)
    s = router_score(s);
  Routing routing;
  routing.experts.resize(tokens.size() * chosen);
  routing.weights.resize(tokens.size() * chosen);
  for (std::size_t r = 0; r < tokens.size(); ++r) {
    const auto row = std::span(scores).subspan(r * experts, experts);
    const auto best = std::span(routing.experts).subspan(r * chosen, chosen);
    if (weights.bias.empty()) {
      std::copy_n(&weights.tid2eid[static_cast<std::size_t>(tokens[r]) * chosen], chosen,
                  best.begin());
    } else {
      choose_best(row, weights.bias, best);
    }
    float sum = 0;
    for (const int e : best)
      sum += row[static_cast<std::size_t>(e)];
    for (std::size_t i = 0; i < chosen; ++i) {
      routing.weights[r * chosen + i] =
          row[static_cast<std::size_t>(best[i])] / sum * config.routed_scaling_factor;
    }
  }
  return routing;
}

void expert_activation(std::span<float> gate, std::span<const float> up, float limit, float alpha) {
  for (std::size_t i = 0; i < gate.size(); ++i) {
    float g = bf16_round(gate[i]);
    float u = bf16_round(up[i]);
    if (limit > 0) {
      g = g > limit ? limit : g;
      u = u > limit ? limit : (u < -limit ? -limit : u);
    }
    gate[i] = bf16_round(alpha * (g / (1.0F + std::exp(-g)) * u));
  }
  act_quant(gate, kActGroup);
}

void expert_outputs(ThreadPool& pool, const ModelConfig& config, const MoeWeights& weights,
                    const Routing& routing, std::span<const float> z_quantized,
                    std::span<float> partial) {
  const auto chosen = static_cast<std::size_t>(config.experts_per_token);
  const auto hidden = static_cast<std::size_t>(config.hidden_size);
  const auto inner = static_cast<std::size_t>(weights.shared.w1.rows);
  const std::size_t rows = z_quantized.size() / hidden;
  const std::size_t slots = rows * (chosen + 1);
  const auto experts = rows_by_expert(weights, routing, rows, chosen);
  std::vector<float> gate(slots * inner);
  std::vector<float> up(slots * inner);
  const auto input = [&](std::size_t slot) { return &z_quantized[slot / (chosen + 1) * hidden]; };
  expert_linear(
      pool, experts, [](const ExpertWeights& e) -> const WeightMatrix& { return e.w1; }, input,
      [&](std::size_t slot) { return &gate[slot * inner]; });
  expert_linear(
      pool, experts, [](const ExpertWeights& e) -> const WeightMatrix& { return e.w3; }, input,
      [&](std::size_t slot) { return &up[slot * inner]; });
  pool.parallel_for(static_cast<std::int64_t>(slots), static_cast<std::int64_t>(1 + 8192 / inner),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (auto slot = static_cast<std::size_t>(begin);
                           slot < static_cast<std::size_t>(end); ++slot) {
                        const std::size_t r = slot / (chosen + 1);
                        const std::size_t i = slot % (chosen + 1);
                        const float alpha = i < chosen ? routing.weights[r * chosen + i] : 1.0F;
                        expert_activation(std::span(gate).subspan(slot * inner, inner),
                                          std::span(up).subspan(slot * inner, inner),
                                          config.swiglu_limit, alpha);
                      }
                    });
  expert_linear(
      pool, experts, [](const ExpertWeights& e) -> const WeightMatrix& { return e.w2; },
      [&](std::size_t slot) { return static_cast<const float*>(&gate[slot * inner]); },
      [&](std::size_t slot) { return &partial[slot * hidden]; });
}

void combine_experts(ThreadPool& pool, const ModelConfig& config, const Routing& routing,
                     std::span<const float> outputs, std::span<float> y) {
  const auto chosen = static_cast<std::size_t>(config.experts_per_token);
  const auto hidden = static_cast<std::size_t>(config.hidden_size);
  pool.parallel_for(
      static_cast<std::int64_t>(y.size() / hidden), static_cast<std::int64_t>(1 + 32768 / hidden),
      [&](std::int64_t begin, std::int64_t end) {
        std::vector<std::size_t> order(chosen + 1);
        for (auto r = static_cast<std::size_t>(begin); r < static_cast<std::size_t>(end); ++r) {
          std::iota(order.begin(), order.end(), std::size_t{0});
          const int* experts = &routing.experts[r * chosen];
          std::sort(order.begin(), order.end() - 1,
                    [&](std::size_t a, std::size_t b) { return experts[a] < experts[b]; });
          float* sum = &y[r * hidden];
          std::fill_n(sum, hidden, 0.0F);
          for (const std::size_t i : order) {
            const float* output = &outputs[(r * (chosen + 1) + i) * hidden];
            for (std::size_t c = 0; c < hidden; ++c)
              sum[c] += bf16_round(output[c]);
          }
          for (std::size_t c = 0; c < hidden; ++c)
            sum[c] = bf16_round(sum[c]);
        }
      });
}

}  // namespace ingot::reference
