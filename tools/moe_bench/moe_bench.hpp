#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cuda/device_buffer.hpp"
#include "runtime/jit/kernel.hpp"
#include "tools/kernel_bench/cubins.hpp"
#include "tools/moe_bench/cells.hpp"
#include "tuner/measure.hpp"

namespace ingot::bench {

/// What one candidate did on one cell.
struct MoeOutcome {
  std::string error;            ///< empty: agrees with the reference, repeats to the bit
  double relative_error = 0;    ///< of the first token, to the double reference
  Timing early;                 ///< programmatic dependent launch
  std::optional<Timing> plain;  ///< plain edges
};

/// Runs candidates of moe_decode on one card. Owns the device memory; one thread. Weights: 3.4 GB
/// of jobs that repeat every 4,099, which is eight sets of experts at TP8 and one at TP1; inputs
/// and routing of each graph node its own.
class MoeBench {
 public:
  MoeBench(std::shared_ptr<const cu::DriverApi> driver, const CubinFolder& cubins);
  ~MoeBench();

  const cu::Context& context() const { return context_; }
  /// The reference of one cell; the rest works on it.
  void enter(const MoeCell& cell);
  /// Checks the candidate, then times it; with `thoroughly` longer, and with plain edges too.
  MoeOutcome run(const MoeCandidate& candidate, bool thoroughly);
  /// Experts that the tokens of a node choose, on average over the nodes.
  double experts_per_node() const;

 private:
  int nodes() const;
  kernels::MoeDecodeArgs args_of(int node) const;
  void launch(const jit::Kernel& kernel, const MoeCandidate& candidate, bool early, int node) const;
  std::vector<float> output() const;
  std::string check(const MoeCandidate& candidate, const jit::Kernel& kernel, MoeOutcome& outcome);
  std::vector<double> exact_token() const;
  const std::vector<int>& ids() const { return cell_.same_experts ? same_ids_ : ids_; }

  const CubinFolder& cubins_;
  cu::Context context_;
  cu::Stream stream_;
  cu::DeviceBuffer arena_, x_, x_scale_, weights_, ids_on_device_, same_ids_on_device_;
  cu::DeviceBuffer sums_, activations_, out_, counters_;
  std::vector<float> jobs_;  ///< [4,099][32][128] weights, as numbers
  std::vector<float> x_host_;
  std::vector<float> weights_host_;
  std::vector<int> ids_, same_ids_;
  MoeCell cell_;
  std::vector<double> exact_;    ///< of the first token
  std::vector<float> expected_;  ///< of the first node, as the first good candidate had it
};

}  // namespace ingot::bench
