#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/checkpoint/checkpoint.hpp"
#include "src/executor/weight_layout.hpp"

/// Loading in pieces: what one thread reads, checks and repacks at a time.
namespace ingot::executor {

/// Whole strips of one matrix of a part.
struct WeightPiece {
  const WeightPart* part = nullptr;
  int expert = 0;              ///< of jobs
  std::int64_t row_begin = 0;  ///< within the part's range
  std::int64_t row_end = 0;
  std::uint64_t offset = 0;  ///< in the block
  std::size_t bytes = 0;     ///< there
};

/// Everything that is placed, in pieces of at most `most_bytes`, or of one strip where that is
/// more. The pieces point into the placement.
std::vector<WeightPiece> weight_pieces(const WeightPlacement& placement, std::size_t most_bytes);

/// The stored tensors that a piece is made of: the one whose rows it holds first; none of
/// frequencies. Throws EngineError: not_found, or corrupt where one is not as long as the config
/// implies.
std::vector<const TensorView*> piece_tensors(const Checkpoint& checkpoint,
                                             const WeightPiece& piece);

/// Asks the kernel to read the rows that a piece is made of. Errors: as piece_tensors().
void read_ahead(const Checkpoint& checkpoint, const WeightPiece& piece);

/// Makes the bytes of a piece from the mapped checkpoint.
/// @param out  piece.bytes
/// Throws EngineError: corrupt for what check_values() refuses before loading, unsupported for
/// scales that the kernels cannot take; both name the tensor. Else as piece_tensors().
void make_piece(const Checkpoint& checkpoint, const ModelConfig& config, const WeightPiece& piece,
                std::span<std::byte> out);

}  // namespace ingot::executor
