#pragma once

#include <string>
#include <vector>

#include "src/executor/step_buffers.hpp"
#include "src/plan/step_bucket.hpp"

namespace ingot::trials {

/// One setting of a bucket's step that every candidate must get right.
struct EdgeCase {
  std::string name;
  executor::StepInputs inputs{};
  int bucket_rows = 0;
  int live_rows = 0;  ///< the others are idle
};

/// The first one is "largest": every row in use, at the end of the bucket's longest context. The
/// slot of a sequence is its number. Of a sampled bucket, tokens are chosen as most users have it
/// in the first one, in every way that the sampler knows in the others.
/// @param top  keys that the indexer selects; 0 where the model has none
std::vector<EdgeCase> edge_cases(const StepBucket& bucket, int vocabulary, int top);

/// Which pages hold a sequence's context. Every sequence has the same number of its own, the first
/// one the last of the pool; where they are fewer than the context needs, they are taken in turns.
struct PageShare {
  int sequences = 1;
  int needed = 1;  ///< pages of the bucket's longest context
  int own = 1;     ///< pages of a sequence, at most `needed`

  int pool_pages() const { return sequences * own; }
  /// @param index  of the page in the sequence's context, below `needed`
  int page(int sequence, int index) const {
    return pool_pages() - 1 - ((needed - 1 - index) % own * sequences + sequence);
  }
};

}  // namespace ingot::trials
