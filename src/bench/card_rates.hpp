#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/cuda/context.hpp"
#include "runtime/cuda/stream.hpp"
#include "runtime/jit/kernel_store.hpp"
#include "tuner/measure.hpp"

namespace ingot {

/// What this very card can do: the ceilings that a measurement of the same run is held against.
struct CardRates {
  std::vector<ColdRead> reads;  ///< cold reads of one graph node, its cost included
  double f16_per_us = 0;        ///< floating point operations of the tensor cores, f16 or bf16
  double fp8_per_us = 0;        ///< likewise on FP8; as f16 where the card has none
  double empty_node_us = 0;     ///< a graph node that does nothing

  /// Bytes a microsecond of reads that never end: the slope of the curve's last piece.
  double bytes_per_us() const;
};

/// How long and on how much the ceilings are measured; the defaults are for data-centre cards.
struct RatePolicy {
  std::uint64_t arena_bytes = std::uint64_t{1} << 30;  ///< far beyond any L2
  std::vector<std::int64_t> read_bytes;  ///< multiples of 16,384, ascending; empty: 64 KB to 192 MB
  int most_nodes = 4096;                 ///< of a graph
  int matrix_rounds = 1024;              ///< of a matrix_rate launch: about a millisecond
  MeasurePolicy measure;
};

/// Measures them with the best of the families memory_read and matrix_rate. Takes arena_bytes of
/// the card's memory meanwhile.
/// @param arch  of the kernels: "sm_90a"
/// Throws EngineError: what compiling reports, cuda.
CardRates measure_card_rates(const cu::Context& context, jit::KernelStore& kernels,
                             const std::string& arch, const RatePolicy& policy);

}  // namespace ingot
