#pragma once

#include <cstdint>

#include "src/checkpoint/model_config.hpp"

/// What a step has to read and to multiply at least, whatever runs it: the floors that times are
/// held against. Source: model specification section 7.
namespace ingot {

/// Bytes of a rank's weights, as the checkpoint stores them, that every step reads.
struct WeightReads {
  std::uint64_t fixed_bytes = 0;   ///< all but embedding and routed experts, over all layers
  std::uint64_t expert_bytes = 0;  ///< one routed expert of one layer
  int layers = 0;

  /// @param distinct_experts  of a layer, that the step's tokens chose
  double bytes(double distinct_experts) const {
    return static_cast<double>(fixed_bytes) +
           layers * distinct_experts * static_cast<double>(expert_bytes);
  }
};
WeightReads weight_reads(const ModelConfig& config, int tp_size);

/// Distinct experts of a layer that `tokens` tokens choose, where all are equally likely.
double expected_experts(const ModelConfig& config, int tokens);

/// Bytes of KV entries and index keys that a token reads behind which the sequence is `length`
/// long.
std::uint64_t context_reads(const ModelConfig& config, std::int64_t length);

/// Floating point operations, by the narrowest format that the tensor cores can take them in.
struct Operations {
  double fp8 = 0;   ///< products with FP8 and FP4 weights, and with index keys
  double bf16 = 0;  ///< with other weights, and attention

  double all() const { return fp8 + bf16; }
  Operations& operator+=(const Operations& other) {
    fp8 += other.fp8;
    bf16 += other.bf16;
    return *this;
  }
};

/// Of one token through a rank's weights.
/// @param with_head  logits are wanted
Operations weight_operations(const ModelConfig& config, int tp_size, bool with_head);
/// Of one token's attention and indexer on a rank, the sequence being `length` long.
Operations context_operations(const ModelConfig& config, int tp_size, std::int64_t length);

}  // namespace ingot
