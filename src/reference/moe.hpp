#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/checkpoint/model_config.hpp"
#include "src/reference/thread_pool.hpp"
#include "src/reference/weight_matrix.hpp"
#include "src/token.hpp"

/// Mixture of experts: router, routed experts, one shared expert.
/// Source: model specification section 3.11. `intermediate` is the rank's share of
/// moe_intermediate_size; with one rank that is all of it.
namespace ingot::reference {

struct ExpertWeights {
  WeightMatrix w1;  ///< gate, [intermediate, hidden] fp4 (shared expert: fp8)
  WeightMatrix w2;  ///< down, [hidden, intermediate]
  WeightMatrix w3;  ///< up, [intermediate, hidden]
};

struct MoeWeights {
  WeightMatrix gate;                   ///< [experts, hidden] bf16
  std::vector<float> bias;             ///< [experts]; empty in hash layers
  std::vector<std::uint16_t> tid2eid;  ///< [vocab, experts_per_token]; hash layers only
  std::vector<ExpertWeights> experts;  ///< [num_experts]
  ExpertWeights shared;
};

/// The experts of each row and their weights.
struct Routing {
  std::vector<int> experts;    ///< [rows, experts_per_token]; best first, or as tid2eid lists them
  std::vector<float> weights;  ///< [rows, experts_per_token] sums to routed_scaling_factor
};

/// Scores in fp32; hash layers take the experts of the token id, others the best of score + bias,
/// ties to the lowest id.
/// @param z       [rows, hidden] bf16 values (after ffn_norm)
/// @param tokens  [rows] ids of the tokens at these positions
Routing route(ThreadPool& pool, const ModelConfig& config, const MoeWeights& weights,
              std::span<const float> z, std::span<const TokenId> tokens);

/// Between an expert's linears: gate ← act_quant(bf16(silu(clamp gate) · clamp up · alpha)).
/// @param gate   [intermediate] of one row, rounded to bf16 first; a multiple of 128
/// @param up     [intermediate] likewise
/// @param limit  above the gate, on both sides of up; none when not positive
/// @param alpha  the expert's weight; 1 for the shared expert
void expert_activation(std::span<float> gate, std::span<const float> up, float limit, float alpha);

/// Each chosen expert's output, and the shared expert's, up to the sum over ranks, fp32.
/// @param z_quantized  [rows, hidden] act_quantized inputs
/// @param partial      [rows, experts_per_token + 1, hidden]; the shared expert is the last
void expert_outputs(ThreadPool& pool, const ModelConfig& config, const MoeWeights& weights,
                    const Routing& routing, std::span<const float> z_quantized,
                    std::span<float> partial);

/// Rounds each summed output to bf16, adds those of a row in fp32 (routed ones by ascending expert
/// id, then the shared one) and rounds to bf16.
/// @param outputs  [rows, experts_per_token + 1, hidden] summed over ranks
/// @param y        [rows, hidden]
void combine_experts(ThreadPool& pool, const ModelConfig& config, const Routing& routing,
                     std::span<const float> outputs, std::span<float> y);

}  // namespace ingot::reference
