#pragma once

#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/cli/card_tuning.hpp"

/// What `ingot prewarm` says of a tuning, as text or JSON lines.
namespace ingot {

/// The complete records that there are, by request of the plan.
std::vector<std::optional<TuningRecord>> records_before(const CardTuning& tuning,
                                                        const jit::KernelStore& kernels,
                                                        TuningStore& records);

/// The first of them: "hc_post tokens=4096; act_quant tokens=512 cols=1024; and 3 more".
std::string some_titles(const std::vector<std::string>& titles);
/// "all_gather 9, all_reduce 27"
std::string titles_by_family(const std::vector<std::string>& titles);

/// How far it came and what is left, where the time went, and what runs with its default for want
/// of other ranks.
void print_coverage(const CardTuned& tuned, const Card& card, bool json, std::FILE* out);

/// A line for each kernel whose choice is not the default, then the table of the families.
void print_gains(std::span<const TuningRecord> records, bool json, std::FILE* out);

/// Every choice that differs from the one before, whether both are ties, and for each step the time
/// with the new choices over that with the old ones.
void print_comparison(const CardTuned& tuned,
                      const std::vector<std::optional<TuningRecord>>& before, bool json,
                      std::FILE* out);

}  // namespace ingot
