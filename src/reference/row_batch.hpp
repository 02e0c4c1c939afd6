#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/reference/rope.hpp"

namespace ingot::reference {

/// The rows that a pass takes through the layers: runs of consecutive positions of some sequences,
/// one run after another.
class RowBatch {
 public:
  /// Appends `count` rows of the next sequence, from `position` on.
  void add_sequence(std::int64_t position, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      positions_.push_back(position + i);
      sequence_of_.push_back(counts_.size());
    }
    counts_.push_back(count);
  }

  /// Call when all sequences are in.
  /// @param plain     frequencies of layers of ratio 0
  /// @param compress  frequencies of the other layers
  void make_angles(std::span<const float> plain, std::span<const float> compress) {
    plain_angles_ = RopeAngles(plain, positions_);
    compress_angles_ = RopeAngles(compress, positions_);
  }

  std::size_t rows() const { return positions_.size(); }
  std::size_t sequences() const { return counts_.size(); }
  /// [rows] position of each row in its sequence
  std::span<const std::int64_t> positions() const { return positions_; }
  /// [sequences] rows of each
  std::span<const std::int64_t> counts() const { return counts_; }
  std::size_t sequence_of(std::size_t row) const { return sequence_of_[row]; }
  const RopeAngles& angles(int ratio) const {
    return ratio == 0 ? plain_angles_ : compress_angles_;
  }

 private:
  std::vector<std::int64_t> positions_;
  std::vector<std::size_t> sequence_of_;
  std::vector<std::int64_t> counts_;
  RopeAngles plain_angles_;
  RopeAngles compress_angles_;
};

}  // namespace ingot::reference
