#pragma once

#include <cstdio>
#include <optional>
#include <span>
#include <vector>

#include "src/cli/card_tuning.hpp"

/// What `ingot prewarm` says of a tuning, as text or JSON lines.
namespace ingot {

/// The complete records that there are, by request of the plan.
std::vector<std::optional<TuningRecord>> records_before(const CardTuning& tuning,
                                                        const jit::KernelStore& kernels,
                                                        TuningStore& records);

/// How far it came, where the time went, and what runs with its default for want of other ranks.
void print_coverage(const CardTuned& tuned, const Card& card, bool json, std::FILE* out);

/// A line for each kernel whose choice is not the default, then the table of the families.
void print_gains(std::span<const TuningRecord> records, bool json, std::FILE* out);

/// Every choice that differs from the one before, whether both are ties, and for each step the time
/// with the new choices over that with the old ones.
void print_comparison(const CardTuned& tuned,
                      const std::vector<std::optional<TuningRecord>>& before, bool json,
                      std::FILE* out);

}  // namespace ingot
