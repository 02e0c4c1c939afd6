#pragma once

#include <string>
#include <vector>

#include "kernel_templates/sparse_mla_decode.space.hpp"
#include "runtime/jit/variant.hpp"

namespace ingot::bench {

/// One place of the comparison: heads of a rank, rows of a launch, selected keys beside the window.
struct MlaCell {
  int heads = 0;
  int rows = 0;
  int selected = 0;

  std::string name() const;  ///< "h64 B16 128+512"
  int keys() const { return 128 + selected; }
  double bytes() const;  ///< least traffic: each key, q and output once
  double flops() const;
  /// Microseconds that FlashMLA took on the same kind of card (combine included; at fewer than 64
  /// heads padded to 64, without the padding copies).
  double flashmla_us() const;
};

/// All cells: first the telling ones, 128 + 512 keys at four batches; then the other batches, then
/// the other key counts.
std::vector<MlaCell> mla_cells();
constexpr std::size_t kTellingCells = 16;

/// Where entries lie in both pools: the default, then what it is compared with.
struct MlaLayout {
  const char* name;
  int entry_stride;
  bool scales_beside;
};
std::vector<MlaLayout> mla_layouts();
kernels::SparseMlaDecodeProblem problem_of(const MlaCell& cell, const MlaLayout& layout);

struct MlaCandidate {
  jit::Variant variant;
  cu::LaunchShape shape;
  int layout = 0;
  bool is_default = false;
  long long exchange_value_bytes = 0, exchange_sum_bytes = 0;

  /// Family and parameters, in a few characters: "M h8 kv32x3 w8 g2 p3 s1".
  std::string brief() const;
};

/// Every candidate of a cell in one layout: the spaces of both families, in the same order in every
/// layout.
std::vector<MlaCandidate> mla_candidates(const MlaCell& cell, int layout,
                                         const cu::DeviceLimits& device);
MlaCandidate simt_candidate(const MlaCell& cell);
/// What every run needs beside the candidates: the readers of the cold-read curve, the per-head
/// kernel.
std::vector<jit::Variant> fixed_variants(const cu::DeviceLimits& limits);

}  // namespace ingot::bench
