#pragma once

#include <span>
#include <vector>

#include "src/checkpoint/model_config.hpp"
#include "src/reference/thread_pool.hpp"
#include "src/reference/weight_matrix.hpp"

/// Hyper-connections: hc = hc_mult residual streams, mixed in front of and behind each sublayer.
/// Streams are X [rows, hc, hidden] bf16 values. Source: model specification sections 3.5 and 3.12.
namespace ingot::reference {

struct HyperConnectionWeights {
  WeightMatrix fn;           ///< [(2 + hc)·hc, hc·hidden]; of a head [hc, hc·hidden]
  std::vector<float> base;   ///< [fn.rows]
  std::vector<float> scale;  ///< [3]; of a head [1]
};

/// The fp32 coefficients of one sublayer.
struct HyperMix {
  std::vector<float> pre;   ///< [rows, hc] weight of each stream in the sublayer's input
  std::vector<float> post;  ///< [rows, hc] weight of the sublayer's output in each stream
  std::vector<float> comb;  ///< [rows, hc (source), hc (destination)], after Sinkhorn
};

/// Steps 1 to 5.
HyperMix hyper_mix(ThreadPool& pool, const ModelConfig& config,
                   const HyperConnectionWeights& weights, std::span<const float> streams);

/// Step 6: Σ_i pre_i · X_i, bf16.
/// @param pre      [rows, hc]
/// @param input    [rows, hidden]
void hyper_collapse(ThreadPool& pool, const ModelConfig& config, std::span<const float> pre,
                    std::span<const float> streams, std::span<float> input);

/// Step 8, in place: X_k ← bf16(post_k · f + Σ_j comb_jk · X_j).
/// @param output   f, [rows, hidden] bf16 values
void hyper_expand(ThreadPool& pool, const ModelConfig& config, const HyperMix& mix,
                  std::span<const float> output, std::span<float> streams);

/// The collapse in front of the final norm: Σ_i pre_i · X_i, bf16, [rows, hidden].
void hyper_head(ThreadPool& pool, const ModelConfig& config, const HyperConnectionWeights& weights,
                std::span<const float> streams, std::span<float> output);

}  // namespace ingot::reference
