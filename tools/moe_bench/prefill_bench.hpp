#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernel_templates/moe_prefill_sm90.space.hpp"
#include "runtime/cuda/device_buffer.hpp"
#include "runtime/jit/kernel.hpp"
#include "runtime/jit/variant.hpp"
#include "tools/kernel_bench/cubins.hpp"
#include "tuner/measure.hpp"

namespace ingot::bench {

enum class PrefillRouting { uniform, same, skewed };

/// One size of the routed experts of many tokens.
struct PrefillCell {
  int tensor_parallel = 1;
  int tokens = 4096;
  PrefillRouting routing = PrefillRouting::uniform;

  int inter() const { return 2048 / tensor_parallel; }
  std::string name() const;  ///< "TP1 4096"
  double flops() const;      ///< of the products
};

std::vector<PrefillCell> prefill_cells();

/// Variants of one pass. Both products with the same tile.
struct PrefillCandidate {
  kernels::MoePrefillSm90Params gate_up, down;

  std::string brief() const;  ///< "t112 s6"
  std::vector<jit::Variant> variants(bool whole_experts) const;
};

/// Every candidate of a cell, the default first.
std::vector<PrefillCandidate> prefill_candidates(const PrefillCell& cell,
                                                 const cu::DeviceLimits& device);
/// What outputs are compared with: moe_decode at 256 tokens.
jit::Variant prefill_reference(const PrefillCell& cell, const cu::DeviceLimits& device);

struct PrefillOutcome {
  std::string error;          ///< empty: agrees with moe_decode, repeats to the bit
  double relative_error = 0;  ///< of the first 256 tokens
  Timing order, gather, gate_up, down, join;
  Timing all;  ///< of a launch, on average: five of them are a pass
};

/// Runs passes on one card, with 3.4 GB of weights as MoeBench has them. One thread.
class PrefillBench {
 public:
  PrefillBench(std::shared_ptr<const cu::DriverApi> driver, const CubinFolder& cubins);

  const cu::Context& context() const { return context_; }
  void enter(const PrefillCell& cell);
  /// @param parts  also time each launch by itself
  PrefillOutcome run(const PrefillCandidate& candidate, bool parts);

 private:
  struct Pass;
  std::string check(const Pass& pass, PrefillOutcome& outcome);
  std::vector<float> output(int tokens) const;

  const CubinFolder& cubins_;
  cu::Context context_;
  cu::Stream stream_;
  cu::DeviceLimits limits_;
  cu::DeviceBuffer arena_, x_, x_scale_, weights_, ids_, workspace_, out_, counters_;
  PrefillCell cell_;
  std::vector<float> expected_;  ///< of the first 256 tokens
  std::vector<float> first_;     ///< of the first good candidate
};

/// Fills the folder with what the cells whose name holds `only` need.
/// @param brief  candidates whose brief() holds this
int compile_prefill(const std::string& arch, const CubinFolder& folder, jit::Compiler& compiler,
                    const std::string& only, const std::string& brief, int jobs);
/// Checks and times; prints a line for each.
int run_prefill(std::shared_ptr<const cu::DriverApi> driver, const CubinFolder& folder,
                const std::string& only, const std::string& brief, int seconds);

}  // namespace ingot::bench
