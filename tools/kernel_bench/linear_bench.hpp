#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cuda/device_buffer.hpp"
#include "runtime/jit/kernel.hpp"
#include "tools/kernel_bench/cells.hpp"
#include "tools/kernel_bench/cubins.hpp"
#include "tools/kernel_bench/linear_data.hpp"
#include "tuner/measure.hpp"

namespace ingot::bench {

/// What one candidate did on one cell.
struct Outcome {
  std::string error;  ///< empty: agrees with the reference, twice to the bit
  double relative_error = 0;
  Timing timing;                ///< plain edges
  std::optional<Timing> early;  ///< programmatic dependent launch
};

/// Runs candidates of the FP8 linears on one card. Owns the device memory; one thread.
class LinearBench {
 public:
  LinearBench(std::shared_ptr<const cu::DriverApi> driver, const CubinFolder& cubins);
  ~LinearBench();

  const cu::Context& context() const { return context_; }

  /// Weights, inputs, reference of one cell; the rest works on it. Takes a second or two.
  void enter(const Cell& cell);
  /// Checks the candidate, then times it. With `thoroughly` longer, and with dependent launch too.
  /// Error text instead of an exception only for wrong results: a driver error throws, and the
  /// context is lost with it.
  Outcome run(const Candidate& candidate, bool thoroughly);
  /// Microseconds of act_quant for the cell's input, in a graph; checks its output to the bit.
  double act_quant_us();

  /// Microseconds of an empty node: one block, a block on each multiprocessor, the latter with
  /// dependent launch.
  std::vector<double> empty_node_us();
  std::vector<ColdRead> cold_reads();

 private:
  struct Input;
  jit::Kernel load(const jit::Variant& variant) const;
  kernels::Fp8LinearArgs args_of(int node) const;
  std::string check(const Candidate& candidate, const jit::Kernel& kernel, Outcome& outcome);
  std::vector<std::uint16_t> output(int set) const;

  const CubinFolder& cubins_;
  cu::Context context_;
  cu::Stream stream_;
  cu::DeviceBuffer weights_, outputs_, workspace_, inputs_;
  Cell cell_;
  std::size_t copy_bytes_ = 0;
  int copies_ = 0;
  std::vector<Input> input_sets_;
  LinearInput first_input_;
  std::vector<float> expected_;
};

}  // namespace ingot::bench
