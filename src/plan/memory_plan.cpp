#include "src/plan/memory_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ingot {
namespace {

std::int64_t units_of(std::int64_t tokens) {
  return (tokens + kHcaPageTokens - 1) / kHcaPageTokens;
}

std::string gigabytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
}

/// The pools grow in units of 8,192 tokens: an HCA page and 32 CSA pages. Besides, each sequence
/// may have begun a page of either kind.
class Arithmetic {
 public:
  Arithmetic(const MemoryCosts& costs, std::uint64_t gpu_bytes)
      : unit_(kHcaPageTokens / kCsaPageTokens * costs.csa_page + costs.hca_page),
        sequence_(costs.slot + costs.csa_page + costs.hca_page),
        base_(costs.weights + costs.buffers + costs.reserve),
        gpu_bytes_(gpu_bytes) {}

  std::uint64_t needed(int sequences, std::int64_t units) const {
    return base_ + sequence_ * static_cast<std::uint64_t>(sequences) +
           unit_ * static_cast<std::uint64_t>(units);
  }
  /// The most units that fit beside so many sequences, up to `most`; -1 where not even these fit.
  std::int64_t fits(int sequences, std::int64_t most) const {
    const std::uint64_t fixed = needed(sequences, 0);
    if (gpu_bytes_ < fixed) return -1;
    if (unit_ == 0) return most;
    return std::min(most, static_cast<std::int64_t>((gpu_bytes_ - fixed) / unit_));
  }
  /// The most sequences that fit beside so many units.
  std::int64_t sequences(std::int64_t units) const {
    const std::uint64_t fixed = needed(0, units);
    return gpu_bytes_ < fixed ? 0 : static_cast<std::int64_t>((gpu_bytes_ - fixed) / sequence_);
  }
  std::uint64_t base() const { return base_; }

 private:
  std::uint64_t unit_, sequence_, base_, gpu_bytes_;
};

/// What the user can do about it.
std::string what_would_fit(const Arithmetic& memory, const MemoryWish& wish, std::int64_t wanted) {
  const std::int64_t units = memory.fits(wish.sequences, wanted);
  if (units > 0) {
    return fmt::format("{} tokens of context would fit: lower --context", units * kHcaPageTokens);
  }
  const std::int64_t sequences = memory.sequences(wanted);
  if (sequences > 0) {
    return fmt::format("{} sequence{} would fit: lower --max-batch", sequences,
                       sequences == 1 ? "" : "s");
  }
  const std::int64_t alone = memory.fits(1, wanted);
  if (alone > 0) {
    return fmt::format("one sequence of {} tokens would fit: lower --context and --max-batch",
                       alone * kHcaPageTokens);
  }
  return "nothing would fit: use a GPU with more memory, or more of them with --tp";
}

}  // namespace

int sequences_for(int max_batch) {
  return std::max(16, 2 * max_batch + 8);
}

Result<MemoryPlan> plan_memory(const std::string& attempt, const MemoryCosts& costs,
                               const MemoryWish& wish, std::uint64_t gpu_bytes) {
  if (wish.sequences < 1) {
    return fail(
        ErrorCode::invalid_argument,
        fmt::format("{}: room for {} sequences asked for, not 1 or more", attempt, wish.sequences));
  }
  const Arithmetic memory(costs, gpu_bytes);
  const std::int64_t least = units_of(wish.max_context);
  const std::int64_t most = least * wish.sequences;
  const bool exact = wish.context_tokens > 0;
  const std::int64_t wanted = exact ? std::min(units_of(wish.context_tokens), most) : most;
  const std::int64_t must = exact ? wanted : least;
  const std::int64_t units = memory.fits(wish.sequences, wanted);
  if (units < must) {
    const std::uint64_t need = memory.needed(wish.sequences, must);
    return fail(
        ErrorCode::exhausted,
        fmt::format("{}: {} sequence{} with a context of {} tokens need {} ({} of weights, {} of "
                    "buffers and reserve, {} of state), {} are free: {} too much; {}",
                    attempt, wish.sequences, wish.sequences == 1 ? "" : "s", wish.max_context,
                    gigabytes(need), gigabytes(costs.weights),
                    gigabytes(costs.buffers + costs.reserve), gigabytes(need - memory.base()),
                    gigabytes(gpu_bytes), gigabytes(need - gpu_bytes),
                    what_would_fit(memory, wish, must)));
  }
  MemoryPlan plan{.costs = costs, .wish = wish, .gpu_bytes = gpu_bytes};
  if (costs.csa_page > 0) {
    plan.csa_pages = static_cast<int>(units * (kHcaPageTokens / kCsaPageTokens) + wish.sequences);
  }
  if (costs.hca_page > 0) plan.hca_pages = static_cast<int>(units + wish.sequences);
  return plan;
}

}  // namespace ingot
