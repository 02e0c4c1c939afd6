#pragma once

#include <vector>

#include "tuner/measure.hpp"

namespace ingot {

/// A graph whose replays are as many whatever their times: for one that waits for a graph of
/// another card, which must be replayed as often. Making it may wait for the card, run() does so
/// only at its end. Throw EngineError(cuda).
class FixedReplays {
 public:
  FixedReplays(const cu::Context& context, const cu::Stream& stream, const cu::Graph& graph,
               int replays);
  /// Two untimed replays, then the timed ones.
  Timing run();

 private:
  const cu::Stream& stream_;
  cu::GraphExec exec_;
  std::vector<cu::Event> marks_;
  int nodes_ = 0;
};

}  // namespace ingot
