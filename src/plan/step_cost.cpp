#include "src/plan/step_cost.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "kernel_templates/common/kv_layout.cuh"
#include "kernel_templates/rope_kv_append.args.h"
#include "src/plan/step_bucket.hpp"
#include "src/weights/tensor_table.hpp"

namespace ingot {
namespace {

constexpr std::uint64_t kEntryBytes = kernels::KV_DATA_BYTES + kernels::KV_SCALE_BYTES;
constexpr std::uint64_t kIndexKeyBytes = kIndexPageBytes / kernels::KV_PAGE_ENTRIES;

bool is_in_step(const TensorSpec& spec) {
  return !spec.name.starts_with("embed") && !spec.name.starts_with("mtp.") &&
         spec.kind != TensorKind::token_experts;
}
bool is_routed(const TensorSpec& spec) {
  return spec.name.find(".experts.") != std::string::npos &&
         spec.name.find("shared_experts") == std::string::npos;
}
bool is_first_expert(const TensorSpec& spec) {
  return spec.name.starts_with("layers.0.") && spec.name.find(".experts.0.") != std::string::npos;
}

std::uint64_t rank_bytes(const TensorSpec& spec, int tp_size) {
  return static_cast<std::uint64_t>(range_bytes(rank_range(spec, 0, tp_size), spec.dtype));
}

/// Of one token, where the tensor is a matrix that it is multiplied by.
double multiplies(const TensorSpec& spec, int tp_size) {
  const bool matrix = spec.kind == TensorKind::bf16 || spec.kind == TensorKind::fp8 ||
                      spec.kind == TensorKind::fp4 || spec.kind == TensorKind::f32;
  if (!matrix || spec.shape.size() != 2 || spec.name.ends_with(".ape")) return 0;
  const TensorRange range = rank_range(spec, 0, tp_size);
  return static_cast<double>(range.rows()) * static_cast<double>(range.columns()) *
         (spec.kind == TensorKind::fp4 ? 2 : 1);
}

}  // namespace

WeightReads weight_reads(const ModelConfig& config, int tp_size) {
  WeightReads reads;
  reads.layers = config.num_layers;
  for (const TensorSpec& spec : tensor_table(config)) {
    if (!is_in_step(spec)) continue;
    if (!is_routed(spec)) {
      reads.fixed_bytes += rank_bytes(spec, tp_size);
    } else if (is_first_expert(spec)) {
      reads.expert_bytes += rank_bytes(spec, tp_size);
    }
  }
  return reads;
}

double expected_experts(const ModelConfig& config, int tokens) {
  const double experts = config.num_experts;
  return experts * (1 - std::pow(1 - config.experts_per_token / experts, tokens));
}

std::uint64_t context_reads(const ModelConfig& config, std::int64_t length) {
  std::uint64_t bytes = 0;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    std::int64_t entries = std::min<std::int64_t>(length, config.sliding_window);
    const LayerKind kind = config.layer_kind(layer);
    if (kind == LayerKind::hca) entries += length / 128;
    if (kind == LayerKind::csa) {
      const std::int64_t visible = length / 4;
      entries += std::min<std::int64_t>(visible, config.index_topk);
      bytes += static_cast<std::uint64_t>(visible) * kIndexKeyBytes;
    }
    bytes += static_cast<std::uint64_t>(entries) * kEntryBytes;
  }
  return bytes;
}

Operations weight_operations(const ModelConfig& config, int tp_size, bool with_head) {
  Operations all;
  for (const TensorSpec& spec : tensor_table(config)) {
    if (!is_in_step(spec) || (!with_head && !spec.name.starts_with("layers."))) continue;
    const double share =
        is_routed(spec) ? static_cast<double>(config.experts_per_token) / config.num_experts : 1;
    const bool narrow = spec.kind == TensorKind::fp8 || spec.kind == TensorKind::fp4;
    (narrow ? all.fp8 : all.bf16) += 2 * share * multiplies(spec, tp_size);
  }
  return all;
}

Operations context_operations(const ModelConfig& config, int tp_size, std::int64_t length) {
  Operations all;
  const double of_key = 4.0 * config.num_heads / tp_size * config.head_dim;
  const double of_index_key = 2.0 * config.index_heads * config.index_head_dim;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    std::int64_t keys = std::min<std::int64_t>(length, config.sliding_window);
    const LayerKind kind = config.layer_kind(layer);
    if (kind == LayerKind::hca) keys += length / 128;
    if (kind == LayerKind::csa) {
      const std::int64_t visible = length / 4;
      keys += std::min<std::int64_t>(visible, config.index_topk);
      all.fp8 += of_index_key * static_cast<double>(visible);
    }
    all.bf16 += of_key * static_cast<double>(keys);
  }
  return all;
}

}  // namespace ingot
