#pragma once

#include <functional>
#include <span>
#include <vector>

#include "runtime/cuda/graph.hpp"
#include "runtime/cuda/stream.hpp"

/// The one clock for kernels: tuner and bench measure with it, nothing else does. A kernel is timed
/// as it is deployed: as a node of a CUDA graph of many nodes, each with another set of arguments,
/// so that no node finds its input in L2. The caller owns the argument sets and says how many make
/// a set cold (beyond three times L2). Numbers include what a graph node costs; measure an empty
/// kernel beside them to know how much that is.
namespace ingot {

struct MeasurePolicy {
  int warmup_replays = 2;     ///< the first of which shows whether a replay is long
  int batch_replays = 5;      ///< replays between two looks at the spread
  int max_replays = 30;       ///< enough, whatever the spread
  double long_us = 4000;      ///< a replay that takes longer than this …
  int long_batch = 3;         ///< … is repeated in smaller batches, three at most
  double good_spread = 0.01;  ///< stop when the samples agree this well
};

/// Time of one graph node, over replays of the graph.
struct Timing {
  double median_us = 0;
  double min_us = 0;
  double spread = 0;  ///< (90th - 10th percentile) / median
  int replays = 0;
  int nodes = 0;
};

/// Median, minimum and spread of samples, each the microseconds of one replay of `nodes` nodes.
/// `samples_us` is not empty.
Timing summarize(std::span<const double> samples_us, int nodes);

/// Records `nodes` calls of `queue`, which queues node i on the stream, as one graph.
cu::Graph record_nodes(const cu::Stream& stream, int nodes, const std::function<void(int)>& queue);

/// Replays the graph and times each replay on the device. All replays of a batch are queued before
/// the first ends, so the host is not in the numbers. Throws EngineError(cuda).
Timing measure(const cu::Context& context, const cu::Stream& stream, const cu::Graph& graph,
               const MeasurePolicy& policy);

/// One size of a cold-read curve: a kernel that only reads, at its best.
struct ColdRead {
  double bytes = 0;
  double us = 0;
};

/// Microseconds that reading `bytes` cold takes at least, between the points of a curve (ascending
/// in bytes, two points or more) and in proportion beyond its last two.
double cold_read_us(std::span<const ColdRead> curve, double bytes);

}  // namespace ingot
