#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

/// Tokens of made-up sequences for compress_kv, brought in any chunks, and what the reference
/// engine makes of them.
namespace ingot::test {

struct CompressLayout {
  int ratio = 4;
  bool index_keys = false;
  int state_rows = 16;
  int page_entries = 64, page_bytes = 37440, entry_stride = 576;
  bool scales_beside = false;

  int dims() const { return index_keys ? 128 : 512; }
  int width() const { return ratio == 4 ? 2 * dims() : dims(); }
  int state_floats() const { return ratio == 4 ? 2 * width() : 3 * dims(); }
};

/// The arguments of one launch.
struct CompressStep {
  int sequences = 0, most_tokens = 0, row_stride = 0, page_stride = 0;
  std::vector<float> k, s;  ///< [tokens, row_stride], NaN behind a row
  std::vector<int> row_starts, positions, slots;
};

/// Pool and state, as launches find and leave them.
struct CompressMemory {
  std::vector<std::uint8_t> pool;
  std::vector<float> state;
};

class CompressData {
 public:
  /// Sequence `n` has `lengths[n]` tokens; among them NaN, zeros, and far-apart scores.
  CompressData(const CompressLayout& layout, std::vector<int> lengths, std::uint32_t seed);

  CompressLayout layout;
  std::vector<int> lengths;
  std::vector<float> ape, frequencies;
  std::vector<std::uint16_t> norm;
  std::vector<int> page_table;
  int page_stride = 0;

  /// Poisoned: nothing has been written.
  CompressMemory memory() const;
  /// Tokens [first, second) of each sequence. `garbage`: other K and S than theirs.
  CompressStep step(const std::vector<std::pair<int, int>>& ranges, bool garbage = false) const;

  struct Difference {
    double share = 0;          ///< of elements that are not the reference's
    bool beyond_step = false;  ///< one is further than a step of its format away
    std::string problem;       ///< anything else that is wrong
  };
  /// The entries of the finished sequences against the reference engine's pool; scales must be the
  /// smallest that fit, and bytes outside of entries must be untouched.
  Difference compare(const std::vector<std::uint8_t>& pool) const;

 private:
  std::vector<std::vector<float>> k_, s_;  ///< [length, width], S without ape
};

using CompressLaunch =
    std::function<void(const CompressData&, const CompressStep&, CompressMemory&)>;

/// All tokens of all sequences, `chunk(step)` more for each in every step.
CompressMemory compress_in_chunks(const CompressData& data, const CompressLaunch& launch,
                                  const std::function<int(int step)>& chunk);
/// One token a step, and before each fourth step as many tokens of garbage as the state can drop.
CompressMemory compress_with_rollbacks(const CompressData& data, const CompressLaunch& launch);

}  // namespace ingot::test
