#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernel_templates/common/types.cuh"
#include "runtime/cuda/context.hpp"
#include "runtime/cuda/device_buffer.hpp"
#include "src/checkpoint/model_config.hpp"
#include "src/plan/memory_plan.hpp"
#include "src/plan/step_bucket.hpp"

namespace ingot::executor {

/// How much state there is room for.
struct StateSizes {
  int slots = 0;      ///< sequences and kept copies of them
  int csa_pages = 0;  ///< of 256 tokens, over all sequences; 0 where the model has no CSA layer
  int hca_pages = 0;  ///< of 8,192 tokens, likewise
  std::int64_t max_context = 0;
  int step_rows = 0;  ///< of the largest step
};

/// Device bytes of one slot, and of one page of each kind over all layers.
struct StateCosts {
  std::uint64_t slot = 0;
  std::uint64_t csa_page = 0;
  std::uint64_t hca_page = 0;
  std::uint64_t bytes(const StateSizes& sizes) const {
    return slot * static_cast<std::uint64_t>(sizes.slots) +
           csa_page * static_cast<std::uint64_t>(sizes.csa_pages) +
           hca_page * static_cast<std::uint64_t>(sizes.hca_pages);
  }
};
StateCosts state_costs(const ModelConfig& config, std::int64_t max_context);
/// Device bytes of the window entries that belong to the rows of a wide step, over all layers.
std::uint64_t pass_window_bytes(const ModelConfig& config, int step_rows);

/// Where one layer keeps what it knows of the sequences. Device addresses.
struct LayerState {
  /// Rings of kWindowRing entries, slot after slot; behind them an entry for each row of a wide
  /// step.
  kernels::u8* window = nullptr;
  kernels::u8* entries = nullptr;     ///< pages of compressed KV; layers of ratio 4 and 128
  kernels::u8* index_keys = nullptr;  ///< pages of index keys; ratio 4
  float* compressor = nullptr;        ///< running state, slot after slot; ratio 4 and 128
  float* index_compressor = nullptr;  ///< ratio 4
};

/// The memory of all sequences on one card: per layer window rings, compressor states and paged
/// pools; and the page tables, whose rows are slots. Layers of one kind share page numbers. Which
/// page is whose is decided elsewhere. Work is queued on the given stream, in order.
class DeviceState {
 public:
  /// Throws EngineError(cuda) where memory does not suffice.
  DeviceState(const cu::Context& context, const ModelConfig& config, const StateSizes& sizes);

  const StateSizes& sizes() const { return sizes_; }
  const LayerState& layer(std::size_t index) const { return layers_[index]; }
  const int* csa_table() const { return tables_.as<int>(); }
  const int* hca_table() const { return tables_.as<int>() + csa_table_ints(); }
  /// The entry of a wide step's first row in a layer's windows.
  int pass_slots() const { return sizes_.slots * kWindowRing; }
  int csa_stride() const { return csa_stride_; }  ///< pages from slot to slot in the table
  int hca_stride() const { return hca_stride_; }

  /// Fills windows and pools with valid entries of no meaning; states with zeros.
  void fill(const cu::Stream& stream) const;
  /// Makes slot `to` equal to slot `from`, but for its rows of the page tables.
  void copy_slot(const cu::Stream& stream, int from, int to) const;
  void copy_csa_page(const cu::Stream& stream, int from, int to) const;
  void copy_hca_page(const cu::Stream& stream, int from, int to) const;
  /// Writes pages `first` and on of a slot's row of a table.
  void write_csa_row(const cu::Stream& stream, int slot, std::size_t first,
                     std::span<const int> pages) const;
  void write_hca_row(const cu::Stream& stream, int slot, std::size_t first,
                     std::span<const int> pages) const;

 private:
  std::size_t csa_table_ints() const {
    return static_cast<std::size_t>(sizes_.slots) * static_cast<std::size_t>(csa_stride_);
  }

  StateSizes sizes_;
  int csa_stride_ = 1;
  int hca_stride_ = 1;
  std::vector<LayerState> layers_;
  std::vector<int> ratios_;
  cu::DeviceBuffer pools_;
  cu::DeviceBuffer tables_;
};

}  // namespace ingot::executor
