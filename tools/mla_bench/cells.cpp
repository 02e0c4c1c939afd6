#include "tools/mla_bench/cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "kernel_templates/memory_read.space.hpp"
#include "kernel_templates/sparse_mla_decode_simt.space.hpp"
#include "kernel_templates/sparse_mla_decode_sm90.space.hpp"

namespace ingot::bench {
namespace {

constexpr int kPageEntries = kernels::KV_PAGE_ENTRIES;
constexpr std::array kRows{1, 2, 4, 8, 16, 32, 64, 128};

// H200, a graph of rotating cold inputs, combine kernel included.
const std::map<int, std::array<double, 8>> kFlashMla{
    {512, {12.9, 13.0, 13.9, 14.8, 17.8, 24.7, 42.8, 44.2}},
    {64, {11.4, 11.5, 11.7, 11.9, 13.2, 16.6, 17.0, 19.5}},
    {1024, {14.6, 14.9, 15.6, 17.5, 21.9, 32.2, 56.9, 69.5}},
    {0, {11.0, 11.1, 11.4, 11.6, 12.3, 12.6, 13.6, 16.1}},
};

int value_of(const jit::Variant& variant, std::string_view name) {
  for (const auto& param : variant.params)
    if (param.name == name) return static_cast<int>(param.value);
  return 0;
}

template <class Family>
MlaCandidate candidate_of(const kernels::SparseMlaDecodeProblem& problem,
                          const typename Family::Params& params, int layout) {
  return {.variant = {std::string(Family::kStem), jit::param_values(params)},
          .shape = Family::launch_shape(problem, params),
          .layout = layout,
          .exchange_value_bytes = Family::exchange_value_bytes(problem, params),
          .exchange_sum_bytes = Family::exchange_sum_bytes(problem, params)};
}

}  // namespace

std::string MlaCell::name() const {
  return fmt::format("h{} B{} 128+{}", heads, rows, selected);
}
double MlaCell::bytes() const {
  return static_cast<double>(rows) * (keys() * 584.0 + heads * 2048.0);
}
double MlaCell::flops() const {
  return static_cast<double>(rows) * heads * keys() * 2048.0;
}
double MlaCell::flashmla_us() const {
  const auto at = std::find(kRows.begin(), kRows.end(), rows) - kRows.begin();
  return kFlashMla.at(selected)[static_cast<std::size_t>(at)];
}

std::vector<MlaCell> mla_cells() {
  std::vector<MlaCell> cells;
  for (const bool first : {true, false})
    for (const int selected : {512, 64, 1024, 0})
      for (const int heads : {64, 32, 16, 8})
        for (const int rows : kRows) {
          const bool telling =
              selected == 512 && (rows == 1 || rows == 16 || rows == 64 || rows == 128);
          if (telling == first) cells.push_back({heads, rows, selected});
        }
  return cells;
}

std::vector<MlaLayout> mla_layouts() {
  return {{"beside592", kernels::KV_ENTRY_STRIDE, kernels::KV_SCALES_BESIDE},
          {"planar576", 576, false}};
}

kernels::SparseMlaDecodeProblem problem_of(const MlaCell& cell, const MlaLayout& layout) {
  kernels::SparseMlaDecodeProblem problem;
  problem.rows = cell.rows;
  problem.heads = cell.heads;
  problem.selected_slots = cell.selected;
  problem.entry_stride = layout.entry_stride;
  problem.scales_beside = layout.scales_beside;
  problem.window_page_entries = problem.selected_page_entries = kPageEntries;
  const int bytes = kPageEntries * layout.entry_stride;
  // As in the model's format: scales behind the entries, the page a multiple of 576 bytes.
  problem.window_page_bytes = problem.selected_page_bytes =
      layout.scales_beside ? bytes : (bytes + kPageEntries * 8 + 575) / 576 * 576;
  return problem;
}

std::string MlaCandidate::brief() const {
  const auto get = [&](std::string_view name) { return value_of(variant, name); };
  const std::string where = mla_layouts()[static_cast<std::size_t>(layout)].name;
  if (variant.family == kernels::SparseMlaDecodeSm90::kStem) {
    return fmt::format("W h{} x{} s{} {}", get("TILE_HEADS"), get("STAGES"), get("NSPLIT"), where);
  }
  if (variant.family == kernels::SparseMlaDecodeSimt::kStem) return "simt";
  return fmt::format("M h{} kv{}x{} w{} g{} p{} s{} {}", get("TILE_HEADS"), get("TILE_KV"),
                     get("STAGES"), 8 / get("SLABS_PER_WARP"), get("KEY_GROUPS"),
                     get("PRODUCER_WARPS"), get("NSPLIT"), where);
}

std::vector<MlaCandidate> mla_candidates(const MlaCell& cell, int layout,
                                         const cu::DeviceLimits& device) {
  std::vector<MlaCandidate> candidates;
  const auto problem = problem_of(cell, mla_layouts()[static_cast<std::size_t>(layout)]);
  const auto add = [&]<class Family>(const Family&) {
    const auto chosen = Family::space(problem, device).candidates();
    for (const auto& params : chosen)
      candidates.push_back(candidate_of<Family>(problem, params, layout));
  };
  add(kernels::SparseMlaDecode{});
  const std::size_t others = candidates.size();
  add(kernels::SparseMlaDecodeSm90{});
  // A space begins with its family's default.
  const bool wgmma = kernels::SparseMlaDecodeSm90::is_default(problem, device);
  candidates[wgmma ? others : 0].is_default = true;
  return candidates;
}

MlaCandidate simt_candidate(const MlaCell& cell) {
  const auto layouts = mla_layouts();
  const auto problem = problem_of(cell, layouts[0]);
  kernels::SparseMlaDecodeSimt::Params params;
  problem.apply_to(params);
  return {.variant = {std::string(kernels::SparseMlaDecodeSimt::kStem), jit::param_values(params)},
          .shape = kernels::SparseMlaDecodeSimt::launch_shape(problem, params)};
}

std::vector<jit::Variant> fixed_variants(const cu::DeviceLimits& limits) {
  std::vector<jit::Variant> variants;
  for (const auto& params : kernels::MemoryRead::space({}, limits).candidates())
    variants.push_back({std::string(kernels::MemoryRead::kStem), jit::param_values(params)});
  variants.push_back(simt_candidate(mla_cells().front()).variant);
  return variants;
}

}  // namespace ingot::bench
