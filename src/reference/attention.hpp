#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/checkpoint/model_config.hpp"
#include "src/reference/rope.hpp"
#include "src/reference/thread_pool.hpp"
#include "src/reference/weight_matrix.hpp"

/// Attention of one rank's heads over one shared latent KV vector per token or block.
/// Source: model specification sections 3.6 to 3.8. `heads` are the rank's query heads, `groups`
/// its output groups; with one rank that is all of them.
namespace ingot::reference {

struct AttentionWeights {
  WeightMatrix wq_a;           ///< [q_lora_rank, hidden] fp8
  WeightMatrix wq_b;           ///< [heads · head_dim, q_lora_rank] fp8
  WeightMatrix wkv;            ///< [head_dim, hidden] fp8
  WeightMatrix wo_a;           ///< [groups · o_lora_rank, heads / groups · head_dim] fp8
  WeightMatrix wo_b;           ///< [hidden, groups · o_lora_rank] fp8
  std::vector<float> q_norm;   ///< [q_lora_rank]
  std::vector<float> kv_norm;  ///< [head_dim]
  std::vector<float> sink;     ///< [heads] fp32 logits, not scaled

  int heads() const { return static_cast<int>(sink.size()); }
};

/// The query latent: RMSNorm(FP8lin(x; wq_a); q_norm), bf16 values.
/// @param x_quantized  [rows, hidden] act_quantized layer inputs
/// @param qr           [rows, q_lora_rank]
void query_latents(ThreadPool& pool, const ModelConfig& config, const AttentionWeights& weights,
                   std::span<const float> x_quantized, std::span<float> qr);

/// Queries: FP8lin(qr; wq_b), head norm, rope; bf16 values.
/// @param qr_quantized  [rows, q_lora_rank] act_quantized query latents
/// @param angles        one row of angles per row
/// @param q             [rows, heads, head_dim]
void queries(ThreadPool& pool, const ModelConfig& config, const AttentionWeights& weights,
             std::span<const float> qr_quantized, const RopeAngles& angles, std::span<float> q);

/// Window entries: RMSNorm(FP8lin(x; wkv); kv_norm), rope, e4m3 per 64 on all but the rope dims.
/// @param x_quantized  [rows, hidden]
/// @param kv           [rows, head_dim] bf16 values
void kv_entries(ThreadPool& pool, const ModelConfig& config, const AttentionWeights& weights,
                std::span<const float> x_quantized, const RopeAngles& angles, std::span<float> kv);

/// Attention of one query token: softmax over the candidates with a sink in the denominator only,
/// weights rounded to bf16 for the value sum. Value = key. bf16 result, not rotated back.
/// @param q     [heads, head_dim]
/// @param keys  [candidates, head_dim], at least one
/// @param sink  [heads]
/// @param o     [heads, head_dim]
void core_attention(std::span<const float> q, std::span<const float> keys,
                    std::span<const float> sink, int head_dim, std::span<float> o);

/// The output projection up to the sum over ranks: grouped wo_a (bf16 input, no activation
/// quantisation), bf16, then FP8lin(·; wo_b) in fp32.
/// @param o        [rows, heads, head_dim] rotated back
/// @param partial  [rows, hidden] fp32; the sum over ranks, rounded to bf16, is the layer's output
void output_projection(ThreadPool& pool, const ModelConfig& config, const AttentionWeights& weights,
                       std::span<const float> o, std::span<float> partial);

}  // namespace ingot::reference
