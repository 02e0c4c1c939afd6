#pragma once

#include <string>
#include <vector>

#include "src/reference/model_weights.hpp"
#include "src/reference/thread_pool.hpp"
#include "tests/src/reference/oracle_dump.hpp"

namespace ingot::test {

/// How far a block's output is from the oracle's, on the oracle's own input.
struct BlockError {
  std::string name;    ///< "layers.2.q"
  double all = 0;      ///< ‖a − b‖ / ‖b‖ over all compared rows
  double worst = 0;    ///< the same, of the worst row
  double limit = 0;    ///< a right implementation's `all` stays under it
  double worst_limit;  ///< … and its `worst` under this; infinity where only `all` is bounded

  bool ok() const { return all < limit && worst < worst_limit; }
};

/// Choices (experts, blocks) that differ from the oracle's.
struct ChoiceError {
  std::string name;
  int rows = 0;       ///< rows compared
  int different = 0;  ///< rows whose choice differs, near ties left out
  int near_ties = 0;  ///< rows that differ where the score gap is under 1e-3 of the score range
};

struct LayerErrors {
  std::vector<BlockError> blocks;
  std::vector<ChoiceError> choices;
};

/// Runs every block of a layer on the oracle's input of that block.
/// @param layer  "layers.N" or "mtp.0", with its tensors in the dump
LayerErrors check_layer(const OracleDump& dump, const Checkpoint& checkpoint,
                        const reference::ModelWeights& weights, reference::ThreadPool& pool,
                        const std::string& layer);

/// The layers of which the dump holds the attention input.
std::vector<std::string> layers_in(const OracleDump& dump, const ModelConfig& config);

/// The errors as a table for people.
std::string error_table(const std::string& model, const std::vector<LayerErrors>& layers);

}  // namespace ingot::test
