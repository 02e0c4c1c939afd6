#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/checkpoint/model_config.hpp"
#include "src/reference/row_history.hpp"
#include "src/reference/thread_pool.hpp"
#include "src/reference/weight_matrix.hpp"

/// The compressor: one pooled entry per block of `ratio` tokens, for the attention (main) and, in
/// CSA layers, for the indexer. Source: model specification section 3.9.
namespace ingot::reference {

/// What the pooled entry is rounded to.
enum class CompressorUse {
  attention,  ///< e4m3 per 64 on all but the rope dims
  indexer,    ///< Hadamard transform, then e2m1 per 32
};

struct CompressorWeights {
  CompressorUse use = CompressorUse::attention;
  int ratio = 0;            ///< tokens per block: 4 (overlapping) or 128
  int dim = 0;              ///< width of an entry
  WeightMatrix wkv;         ///< [row_width, hidden] bf16
  WeightMatrix wgate;       ///< [row_width, hidden] bf16
  std::vector<float> ape;   ///< [ratio, row_width]
  std::vector<float> norm;  ///< [dim]

  /// Channels of a token's K and S: with overlap half A goes to the next block, half B to its own.
  int row_width() const { return ratio == 4 ? 2 * dim : dim; }
  /// Tokens that an entry pools.
  int pooled_rows() const { return ratio == 4 ? 8 : ratio; }
};

/// K_t = wkv · x_t and S_t = wgate · x_t + ape[t mod ratio], fp32.
/// @param x          [rows, hidden] bf16 values
/// @param positions  [rows] position of each row in its sequence
/// @param k, s       [rows, row_width]
void compressor_rows(ThreadPool& pool, const CompressorWeights& weights, std::span<const float> x,
                     std::span<const std::int64_t> positions, std::span<float> k,
                     std::span<float> s);

/// The entry of block `block`: per-channel softmax of S over the pooled rows, Σ weight · K, bf16,
/// RMS norm, rope at position ratio · block, and the rounding of `use`.
/// @param k, s  the rows of the block's tokens in order; with overlap the 4 rows of the block
///              before come first, and block 0 has no such rows
/// @param entry [dim] bf16 values
void compress_block(const ModelConfig& config, const CompressorWeights& weights,
                    std::span<const float> frequencies, std::int64_t block,
                    std::span<const float* const> k, std::span<const float* const> s,
                    std::span<float> entry);

/// A compressor's share of a sequence: the K and S rows that a block may still need, and the pool
/// of finished entries.
class CompressorState {
 public:
  CompressorState() = default;
  explicit CompressorState(const CompressorWeights& weights);

  std::int64_t entries() const;
  /// [entries, dim] bf16 bits
  std::span<const std::uint16_t> pool() const { return pool_; }

  /// Takes the rows of the next tokens and finishes the blocks that they complete.
  /// @param k, s  [new tokens, row_width]
  void append(ThreadPool& threads, const ModelConfig& config, const CompressorWeights& weights,
              std::span<const float> frequencies, std::span<const float> k,
              std::span<const float> s);
  void rollback(std::int64_t length);
  /// Forgets rows that no sequence of at least `length` tokens needs.
  void forget_before(std::int64_t length);

  void write(ByteWriter& out) const;
  /// Takes what write() wrote of a sequence of `length` tokens that may be rolled back to
  /// `shortest`. False where it is anything else.
  bool read(ByteReader& in, std::int64_t length, std::int64_t shortest);

  /// Equal pools, and equal rows where a continuation after `length` or more tokens looks.
  bool same_as(const CompressorState& other, std::int64_t length) const;

 private:
  /// The oldest row that completing a block after `length` tokens reads.
  std::int64_t first_needed(std::int64_t length) const;

  int ratio_ = 0;
  int dim_ = 0;
  RowHistory<float> k_;
  RowHistory<float> s_;
  std::vector<std::uint16_t> pool_;
};

/// y = H · x · n^-0.5, H the Sylvester (natural order) Walsh-Hadamard matrix, fp32, then bf16; in
/// place. The length n is a power of two.
void hadamard(std::span<float> x);

}  // namespace ingot::reference
