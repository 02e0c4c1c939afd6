#pragma once

#include <cstddef>

#include "src/checkpoint/checkpoint.hpp"
#include "src/executor/weight_layout.hpp"
#include "src/executor/weight_store.hpp"

namespace ingot::executor {

struct LoadOptions {
  int threads = 4;  ///< that read, repack and start copies; at least 1
  /// Of each of a thread's buffers. Large enough that a copy is at full speed, small enough that
  /// eight of them are nothing beside a model.
  std::size_t staging_bytes = std::size_t{16} << 20;
};

/// Reads, checks and repacks everything that is placed into the store: pieces in the order in which
/// they lie in the shards, each by one thread. `progress` is called on the calling thread, and may
/// throw to end the loading.
/// Throws what progress throws, and EngineError as make_piece(): the first failed piece's by place.
/// No thread and no copy is under way when this returns or throws.
void load_weights(const Checkpoint& checkpoint, const WeightPlacement& placement,
                  WeightStore& store, const LoadOptions& options, const LoadProgress& progress);

}  // namespace ingot::executor
