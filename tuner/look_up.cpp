#include "tuner/look_up.hpp"

#include <fmt/format.h>

#include "runtime/base/log.hpp"

namespace ingot {

std::string LookUp::missing_line() const {
  if (first_missing.empty()) return "";
  return fmt::format(
      "{} of {} kernels have no tuning choice and run with their defaults, the first for {}: "
      "`ingot "
      "prewarm` tunes them",
      with_choice - tuned, with_choice, first_missing);
}

Result<LookUp> look_up(std::span<const TuningRequest> requests, const TuningScope& scope,
                       const jit::KernelStore& kernels, TuningStore& records,
                       const Overrides& overrides) {
  LookUp found;
  for (const TuningRequest& request : requests) {
    const auto allowed = overrides.allowed(request);
    if (!allowed) return tl::unexpected(allowed.error());
    if (request.candidates.size() == 1) {
      found.selections.push_back(select(request, *allowed, std::nullopt));
      continue;
    }
    const auto key = key_of(request, scope.device, scope.tp_size, scope.policy, kernels);
    if (!key) return tl::unexpected(key.error());
    const auto record = records.find(*key);
    if (record && !request.has_candidate(record->chosen().variant)) {
      log::warn("the tuning record for {} chose {}, which is not legal here: it counts as missing",
                key->title(), jit::describe(record->chosen().variant));
    }
    const Selection selection = select(request, *allowed, record);
    ++found.with_choice;
    if (selection.source != Selection::Source::fallback) {
      ++found.tuned;
    } else if (found.first_missing.empty()) {
      found.first_missing = key->title();
    }
    found.selections.push_back(selection);
  }
  return found;
}

}  // namespace ingot
