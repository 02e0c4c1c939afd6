#pragma once

#include <optional>
#include <vector>

#include "src/checkpoint/checkpoint.hpp"
#include "src/reference/attention.hpp"
#include "src/reference/compressor.hpp"
#include "src/reference/hyper_connection.hpp"
#include "src/reference/indexer.hpp"
#include "src/reference/moe.hpp"
#include "src/reference/weight_matrix.hpp"

namespace ingot::reference {

struct LayerWeights {
  int ratio = 0;
  HyperConnectionWeights hc_attn;
  HyperConnectionWeights hc_ffn;
  std::vector<float> attn_norm;  ///< [hidden]
  std::vector<float> ffn_norm;   ///< [hidden]
  AttentionWeights attention;
  std::optional<CompressorWeights> compressor;  ///< layers of ratio 4 and 128
  std::optional<IndexerWeights> indexer;        ///< layers of ratio 4
  MoeWeights moe;
};

/// The draft block: one more layer, and what joins the hidden state with the next token.
struct MtpWeights {
  LayerWeights layer;
  WeightMatrix e_proj;       ///< [hidden, hidden] fp8
  WeightMatrix h_proj;       ///< [hidden, hidden] fp8
  std::vector<float> enorm;  ///< [hidden]
  std::vector<float> hnorm;  ///< [hidden]
  std::vector<float> norm;   ///< [hidden]
  HyperConnectionWeights hc_head;
};

/// What one tensor parallel rank computes with: ranges of the mapped matrices, and copies of the
/// small vectors. Valid as long as the Checkpoint.
struct ModelWeights {
  WeightMatrix embed;       ///< [vocabulary share, hidden] bf16; first_row is its first token
  WeightMatrix head;        ///< [vocabulary share, hidden] bf16
  std::vector<float> norm;  ///< [hidden]
  HyperConnectionWeights hc_head;
  std::vector<LayerWeights> layers;
  std::optional<MtpWeights> mtp;  ///< block 0
};

/// The weights of a rank; ranges as src/weights/tensor_table splits them.
ModelWeights model_weights(const Checkpoint& checkpoint, int tp_rank, int tp_size);

}  // namespace ingot::reference
