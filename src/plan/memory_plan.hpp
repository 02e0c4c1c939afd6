#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/error.hpp"

/// What one GPU's memory holds, decided before anything is allocated. The engine takes its pools
/// from here and the loader asks here before it reads a weight; who shows a plan shows the same.
namespace ingot {

/// Tokens behind a page of compressed entries: pages hold 64.
constexpr std::int64_t kCsaPageTokens = 64 * 4;
constexpr std::int64_t kHcaPageTokens = 64 * 128;

/// Device bytes of a rank.
struct MemoryCosts {
  std::uint64_t weights = 0;
  std::uint64_t buffers = 0;   ///< what kernels hand on to each other, at the longest step
  std::uint64_t slot = 0;      ///< of one sequence: windows, compressor states, page tables
  std::uint64_t csa_page = 0;  ///< of 256 tokens, over all layers; 0 where the model has none
  std::uint64_t hca_page = 0;  ///< of 8,192 tokens, likewise
  std::uint64_t reserve = 0;   ///< left to the driver, to graphs and to scratch of kernels
};

struct MemoryWish {
  int sequences = 1;  ///< and kept copies of them
  std::int64_t max_context = 0;
  std::int64_t context_tokens = 0;  ///< of all sequences together; 0 = what the memory leaves
};

struct MemoryPlan {
  MemoryCosts costs;
  MemoryWish wish;
  int csa_pages = 0;
  int hca_pages = 0;
  int step_rows = 0;            ///< tokens of the longest pass that the buffers are made for
  std::uint64_t gpu_bytes = 0;  ///< that the plan was made for

  std::uint64_t slot_bytes() const {
    return costs.slot * static_cast<std::uint64_t>(wish.sequences);
  }
  std::uint64_t pool_bytes() const {
    return costs.csa_page * static_cast<std::uint64_t>(csa_pages) +
           costs.hca_page * static_cast<std::uint64_t>(hca_pages);
  }
  std::uint64_t used_bytes() const {
    return costs.weights + costs.buffers + slot_bytes() + pool_bytes() + costs.reserve;
  }
  /// Tokens of context that the pools hold, over all sequences.
  std::int64_t context_tokens() const {
    return csa_pages > 0 ? csa_pages * kCsaPageTokens : hca_pages * kHcaPageTokens;
  }
};

/// Sequences and kept copies that a scheduler of `max_batch` needs room for.
int sequences_for(int max_batch);

/// Room for as many sequences as asked for, and pages for what the memory leaves: at least one
/// sequence of the full context, at most all of them.
/// @param attempt  "starting the device engine", in front of errors
/// Errors: invalid_argument for fewer sequences than one; exhausted where it does not fit: what is
/// needed, by how much it is too much, and what would fit.
[[nodiscard]] Result<MemoryPlan> plan_memory(const std::string& attempt, const MemoryCosts& costs,
                                             const MemoryWish& wish, std::uint64_t gpu_bytes);

}  // namespace ingot
