#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/checkpoint/model_config.hpp"
#include "src/reference/compressor.hpp"
#include "src/reference/rope.hpp"
#include "src/reference/thread_pool.hpp"
#include "src/reference/weight_matrix.hpp"

/// The lightning indexer of CSA layers: scores every visible block, and keeps the best index_topk.
/// All index heads on every rank. Source: model specification section 3.10.
namespace ingot::reference {

struct IndexerWeights {
  WeightMatrix wq_b;          ///< [index_heads · index_head_dim, q_lora_rank] fp8
  WeightMatrix weights_proj;  ///< [index_heads, hidden] bf16
  CompressorWeights compressor;
};

/// Queries of rows: FP8 linear, rope, Hadamard, fp4quant; and head weights, bf16.
/// @param qr_quantized  [rows, q_lora_rank] act_quantized query latents
/// @param x             [rows, hidden] bf16 values
/// @param angles        one row of angles per row
/// @param q             [rows, index_heads, index_head_dim]
/// @param head_weights  [rows, index_heads]
void index_queries(ThreadPool& pool, const ModelConfig& config, const IndexerWeights& weights,
                   std::span<const float> qr_quantized, std::span<const float> x,
                   const RopeAngles& angles, std::span<float> q, std::span<float> head_weights);

/// score_j = Σ_h weight_h · relu(q_h · key_j), fp32, heads in ascending order.
/// @param q             [index_heads, index_head_dim]
/// @param head_weights  [index_heads]
/// @param keys          [blocks, index_head_dim] bf16 bits
/// @param scores        [blocks]
void index_scores(const ModelConfig& config, std::span<const float> q,
                  std::span<const float> head_weights, std::span<const std::uint16_t> keys,
                  std::span<float> scores);

/// Indices of the `count` highest values (all of them if there are fewer), ascending. Of equal
/// values the lowest index wins; NaN counts as −inf.
std::vector<int> top_indices(std::span<const float> values, int count);

}  // namespace ingot::reference
