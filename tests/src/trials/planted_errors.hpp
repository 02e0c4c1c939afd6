#pragma once

#include <vector>

namespace ingot::test {

/// A wrong constant in a family's template: text that stands there once, and what is put instead.
struct PlantedError {
  const char* family;
  const char* file;  ///< below kernel_templates
  const char* from;
  const char* to;
  // The same in the emulator's version of the file; null: it has none.
  const char* emulated_from = nullptr;
  const char* emulated_to = nullptr;
};

/// One or more for every family that a step may launch.
inline const std::vector<PlantedError>& planted_errors() {
  static const std::vector<PlantedError> errors{
      // One scale exponent off, where there are scales.
      {"act_quant", "common/fp8.cuh", "(127 - exponent) << 23", "(128 - exponent) << 23",
       "std::ldexp(1.0f, -exponent)", "std::ldexp(1.0f, 1 - exponent)"},
      {"swiglu_quant", "common/fp8.cuh", "(127 - exponent) << 23", "(128 - exponent) << 23",
       "std::ldexp(1.0f, -exponent)", "std::ldexp(1.0f, 1 - exponent)"},
      {"fp8_linear", "common/fp8.cuh", "0x00400000u : byte << 23", "0x00400000u : (byte + 1) << 23",
       "static_cast<int>(byte) - 127", "static_cast<int>(byte) - 126"},
      {"fp8_linear_sm90", "common/fp8.cuh", "0x00400000u : byte << 23",
       "0x00400000u : (byte + 1) << 23", "static_cast<int>(byte) - 127",
       "static_cast<int>(byte) - 126"},
      {"grouped_linear", "common/fp8.cuh", "0x00400000u : byte << 23",
       "0x00400000u : (byte + 1) << 23", "static_cast<int>(byte) - 127",
       "static_cast<int>(byte) - 126"},
      {"grouped_linear_few", "common/fp8.cuh", "0x00400000u : byte << 23",
       "0x00400000u : (byte + 1) << 23", "static_cast<int>(byte) - 127",
       "static_cast<int>(byte) - 126"},
      {"moe_decode", "common/moe_job.cuh", "at_exponent & 0x7f800000u",
       "(at_exponent & 0x7f800000u) + 0x800000u"},
      {"rope_kv_append", "rope_kv_append.cuh", "exponent + 127 : 0", "exponent + 128 : 0"},
      {"compress_kv", "common/fp8.cuh", "(127 - exponent) << 23", "(128 - exponent) << 23",
       "std::ldexp(1.0f, -exponent)", "std::ldexp(1.0f, 1 - exponent)"},
      {"indexer_queries", "common/index_entry.cuh", "255 : exponent + 127", "255 : exponent + 128"},
      {"indexer_scores", "common/index_keys.cuh", "0x00400000u : unit << 23",
       "0x00400000u : (unit + 1) << 23"},
      {"indexer_scores_sm90", "common/index_keys.cuh", "0x00400000u : unit << 23",
       "0x00400000u : (unit + 1) << 23"},
      {"sparse_mla_decode", "sparse_mla_decode.cuh", "__uint_as_float(low_scale[t] << 23)",
       "__uint_as_float((low_scale[t] + 1) << 23)"},
      {"sparse_mla_decode_sm90", "common/sparse_mla.cuh", "(exponent + 127) << 23",
       "(exponent + 128) << 23"},
      // Elsewhere a factor, a place or a mask.
      {"q_norm_rope", "q_norm_rope.cuh", "(1.0f / DIMS)", "(2.0f / DIMS)"},
      {"hc_pre", "common/hc_finish.cuh", "return pack_bf16(low_to_float(weights) *",
       "return pack_bf16(2.0f * low_to_float(weights) *"},
      {"hc_post", "hc_post.cuh", "f.pairs[p])", "f.pairs[p ^ 1])"},
      {"embedding", "embedding.cuh", "row * HIDDEN + vector * VECTOR",
       "row * HIDDEN + (vector ^ 1) * VECTOR"},
      {"expert_sum", "expert_sum.cuh", "pack_bf16(routed[i].x +", "pack_bf16(2.0f * routed[i].x +"},
      {"router_topk", "common/router_choice.cuh", "score / sum * args.route_scale",
       "score / sum * args.route_scale * 2.0f"},
      {"shared_expert_few", "common/router_choice.cuh", "score / sum * args.route_scale",
       "score / sum * args.route_scale * 2.0f"},
      {"bf16_linear", "bf16_linear.cuh", "(work.k_begin + at.k) * BF16_TILE_COLS + chunk * 8",
       "(work.k_begin + at.k) * BF16_TILE_COLS + (chunk ^ 1) * 8"},
      {"attention_slots", "attention_slots.cuh", "ring + (seen - 1) % RING", "ring + seen % RING"},
      {"sample_tokens", "sample_tokens.cuh", "static_cast<double>(logit) - log_sum)",
       "static_cast<double>(logit) - 2 * log_sum)"},
      {"indexer_topk", "common/topk_keys.cuh", "(bits >> 31) | 0x80000000u", "(bits >> 31) | 0u"},
  };
  return errors;
}

}  // namespace ingot::test
