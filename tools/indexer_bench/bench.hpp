#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cuda/device_buffer.hpp"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/jit/kernel.hpp"
#include "tools/kernel_bench/cubins.hpp"
#include "tuner/measure.hpp"

namespace ingot::bench {

enum class Work { scores, topk, compress_csa, compress_hca, compress_index };

struct Cell {
  Work work = Work::scores;
  int rows = 1;     ///< sequences, one token each
  int entries = 0;  ///< of each row; compressors: 1 when the token completes a block, else 0

  std::string name() const;
  /// That the kernel has to move.
  double bytes() const;
};

std::vector<Cell> indexer_cells();

struct Candidate {
  jit::Variant variant;
  cu::LaunchShape shape;
};
/// All candidates of all families for the cells, the default first.
std::vector<Candidate> candidates_of(const std::vector<Cell>& cells,
                                     const cu::DeviceLimits& limits);

struct Outcome {
  std::string error;  ///< empty: right, and the same bits twice
  Timing plain, dependent;
};

/// Runs candidates on one card; owns the device memory; one thread. Keys and scores rotate over
/// more memory than L2 holds. Top-k is checked against the definition, scores against the first
/// family's default, and compressed entries against their first candidate's.
class IndexerBench {
 public:
  IndexerBench(std::shared_ptr<const cu::DriverApi> driver, const CubinFolder& cubins);

  std::string card() const { return context_.device().name; }
  const cu::DeviceLimits& limits() const { return limits_; }
  Outcome run(const Cell& cell, const Candidate& candidate);

 private:
  /// Queues node `node` of the cell.
  void launch(const jit::Kernel& kernel, const cu::LaunchShape& shape, const Cell& cell, int node);
  void enter(const Cell& cell);
  int nodes(const Cell& cell) const;
  /// What one launch wrote; poisoned before.
  std::vector<std::byte> result(const jit::Kernel& kernel, const Candidate& candidate,
                                const Cell& cell);
  std::string check(const Cell& cell, const std::vector<std::byte>& got);

  const CubinFolder& cubins_;
  cu::Context context_;
  cu::Stream stream_;
  cu::DeviceLimits limits_;
  cu::DeviceBuffer pool_, pages_, q_, q_scales_, weights_, scores_, out_, counts_, sequences_;
  cu::DeviceBuffer selected_, nans_, candidate_keys_, candidate_indices_, arrived_;
  cu::DeviceBuffer k_, s_, ape_, norm_, frequencies_, row_starts_, positions_, state_;
  std::vector<float> score_values_;
  std::string entered_;
  std::vector<std::byte> expected_;
};

}  // namespace ingot::bench
