#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/cuda/device_buffer.hpp"
#include "runtime/jit/kernel.hpp"
#include "tools/kernel_bench/cubins.hpp"
#include "tools/mla_bench/cells.hpp"
#include "tuner/measure.hpp"

namespace ingot::bench {

/// What one candidate did on one cell.
struct MlaOutcome {
  std::string error;            ///< empty: agrees with the reference, repeats to the bit
  double relative_error = 0;    ///< to the double reference, on the rows that it covers
  Timing timing;                ///< plain edges
  std::optional<Timing> early;  ///< programmatic dependent launch
};

/// Runs candidates of the sparse MLA decode families on one card. Owns the device memory; one
/// thread. Inputs: pools of half a million entries each; 1,024 rows with windows at random places
/// and, of 512 keys, keys at random places of 16K entries, else contiguous ones; then rows with
/// unused slots, short and empty lists, for the check.
class MlaBench {
 public:
  MlaBench(std::shared_ptr<const cu::DriverApi> driver, const CubinFolder& cubins);
  ~MlaBench();

  const cu::Context& context() const { return context_; }
  /// Lists and references of one cell; the rest works on it.
  void enter(const MlaCell& cell);
  /// Checks the candidate, then times it. With `thoroughly`: repeats the check to the bit, looks
  /// that the exchange buffers are clean, times longer, and with dependent launch too.
  MlaOutcome run(const MlaCandidate& candidate, bool thoroughly);
  /// Launches a traced candidate on several sets of rows and returns the stamps of the last one.
  std::vector<std::uint32_t> trace(const MlaCandidate& candidate, std::span<const std::byte> cubin);
  /// Microseconds of the per-head kernel on the cell.
  double simt_us();
  std::vector<double> empty_node_us();
  std::vector<ColdRead> cold_reads();

 private:
  struct Pools {
    cu::DeviceBuffer window, selected;
  };
  jit::Kernel load(const jit::Variant& variant) const;
  Pools& pools(int layout);
  /// @param first  row that the launch begins with, out of the prepared ones
  kernels::SparseMlaDecodeArgs args_of(int layout, int first) const;
  void launch(const jit::Kernel& kernel, const MlaCandidate& candidate, bool early,
              int first) const;
  std::vector<std::uint16_t> output(int first) const;
  std::string check(const MlaCandidate& candidate, const jit::Kernel& kernel, bool thoroughly,
                    MlaOutcome& outcome);
  std::vector<double> exact_heads() const;

  const CubinFolder& cubins_;
  cu::Context context_;
  cu::Stream stream_;
  std::map<int, Pools> pools_;
  cu::DeviceBuffer q_, out_, window_lists_, selected_lists_, window_counts_, selected_counts_;
  cu::DeviceBuffer sink_, positions_, frequencies_, exchange_values_, exchange_sums_;
  std::vector<int> window_list_, selected_list_, window_count_, selected_count_, position_;
  std::vector<std::uint16_t> q_host_;
  std::vector<float> sink_host_, frequency_;
  int lists_of_ = -1;  ///< selected slots that the lists were made for
  MlaCell cell_;
  std::vector<double> exact_;                           ///< of the first row's first heads
  std::vector<std::uint16_t> bits_;                     ///< of row 0 and on, of the candidate
  std::map<int, std::vector<std::uint16_t>> expected_;  ///< by first row, of the per-head kernel
};

}  // namespace ingot::bench
