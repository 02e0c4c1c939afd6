#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "runtime/jit/variant.hpp"
#include "tools/mla_bench/cells.hpp"

namespace ingot::bench {

/// A variant that can attend a chunk of a prompt: of the prefill families, or an unsplit one of the
/// decode families for comparison.
struct PrefillCandidate {
  std::string brief;
  jit::Variant variant;
  cu::LaunchShape shape;
  int layout = 0;
};

/// Chunks of 512, 1,024 and 4,096 tokens, 64 and 8 heads, 128 + 512 keys; then 128 + 1,024
/// contiguous ones and the window alone.
std::vector<MlaCell> prefill_cells();
/// @param limits  of the card that the cubins are made for
std::vector<PrefillCandidate> prefill_candidates(const MlaCell& cell,
                                                 const cu::DeviceLimits& limits);

/// Checks and times every candidate of the cells whose name holds `only` on this machine's first
/// GPU; a line each on the screen and in `out`, JSON lines. Every token has a window that ends at
/// itself and its own selected keys, drawn from the 16,384 entries that 64K tokens of context have;
/// contiguous ones are the same for all tokens. Nothing rotates but q and the output, which are
/// larger than the L2. True when all were right.
bool run_prefill_bench(const std::filesystem::path& cubins, const std::string& arch,
                       const std::filesystem::path& out, const std::string& only, int seconds);

}  // namespace ingot::bench
