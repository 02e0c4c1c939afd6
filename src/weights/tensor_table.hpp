#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/dtype.hpp"
#include "runtime/base/error.hpp"
#include "src/checkpoint/model_config.hpp"

namespace ingot {

/// What the stored bytes of a tensor are. A weight `X.weight` of kind fp8 or fp4 has its scales in
/// `X.scale`. Source: model specification 2.3.
enum class TensorKind {
  bf16,           ///< a matrix in BF16
  norm,           ///< RMSNorm weights, BF16
  f32,            ///< F32
  fp8,            ///< F8_E4M3; value × 2^(scale[row / 128, column / 128] - 127)
  fp4,            ///< I8, two e2m1 a byte, low nibble = even column;
                  ///< value × 2^(scale[row, column / 32] - 127)
  block_scale,    ///< F8_E8M0 of an fp8 weight
  group_scale,    ///< F8_E8M0 of an fp4 weight
  token_experts,  ///< I64: the experts of every token id, for hash layers
};

/// How the ranks of a tensor-parallel group share a tensor.
enum class Split { replicated, rows, columns };

/// One tensor that a checkpoint of a given config holds.
struct TensorSpec {
  std::string name;  ///< official name, such as "layers.3.ffn.experts.7.w2.weight"
  TensorKind kind{};
  Dtype dtype{};
  std::vector<std::int64_t> shape;  ///< as stored: an fp4 weight [rows, columns / 2] I8
  Split split = Split::replicated;
};

/// The part of a stored matrix that one rank owns, in stored units: for an fp4 weight a column is a
/// byte (two values), for scales a row or column is a block. A vector is a matrix of one column.
struct TensorRange {
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  std::int64_t column_begin = 0;
  std::int64_t column_end = 0;

  std::int64_t rows() const { return row_end - row_begin; }
  std::int64_t columns() const { return column_end - column_begin; }
  bool operator==(const TensorRange&) const = default;
};

/// Every tensor of the trunk and of its MTP blocks, in the order in which synthetic checkpoints
/// store them: embed, layers, norm, head, hc_head, mtp. DSpark draft tensors are not in it.
/// Source: model specification 2.2; the split from the design, section 7.
std::vector<TensorSpec> tensor_table(const ModelConfig& config);

/// What rank `tp_rank` of `tp_size` owns; tp_size must be one of valid_tp_sizes().
TensorRange rank_range(const TensorSpec& spec, int tp_rank, int tp_size);

/// Bytes of a range.
std::int64_t range_bytes(const TensorRange& range, Dtype dtype);

/// The group sizes that a model can be split over, ascending, 1 first: those that divide heads,
/// output groups, index heads and vocabulary, and leave intermediate / TP,
/// o_groups · o_lora_rank / TP and heads · head_dim / TP multiples of 128, so that no FP8 scale
/// block or activation group is cut.
std::vector<int> valid_tp_sizes(const ModelConfig& config);

/// Error: invalid_argument; the message lists the valid sizes.
[[nodiscard]] Result<void> check_tp_size(const ModelConfig& config, int tp_size);

}  // namespace ingot
