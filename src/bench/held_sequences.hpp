#pragma once

#include <vector>

#include "src/engine/engine.hpp"

namespace ingot {

/// Sequences that are released whatever happens.
class HeldSequences {
 public:
  explicit HeldSequences(Engine& engine) : engine_(engine) {}
  HeldSequences(const HeldSequences&) = delete;
  HeldSequences& operator=(const HeldSequences&) = delete;
  ~HeldSequences() {
    for (const SequenceId id : ids_)
      engine_.release(id);
  }
  void add(SequenceId id) { ids_.push_back(id); }
  const std::vector<SequenceId>& ids() const { return ids_; }

 private:
  Engine& engine_;
  std::vector<SequenceId> ids_;
};

}  // namespace ingot
