#include "tuner/verify.hpp"

#include <fmt/format.h>

namespace ingot {

Result<PoisonedRuns> Verifier::runs(const TrialKernel& kernel, std::size_t edge_case) {
  PoisonedRuns runs;
  auto nan = runner_.run(kernel, edge_case, Poison::nan);
  if (!nan) return tl::unexpected(nan.error());
  auto huge = runner_.run(kernel, edge_case, Poison::huge);
  if (!huge) return tl::unexpected(huge.error());
  return PoisonedRuns{.nan = std::move(*nan), .huge = std::move(*huge)};
}

Result<void> Verifier::set_reference(const TrialKernel& reference,
                                     std::vector<std::string> edge_cases) {
  edge_cases_ = std::move(edge_cases);
  expected_.clear();
  for (std::size_t i = 0; i < edge_cases_.size(); ++i) {
    auto expected = runs(reference, i);
    if (!expected) return tl::unexpected(expected.error());
    if (const auto found = disagreement(*expected, *expected)) {
      return fail(ErrorCode::corrupt,
                  fmt::format("the reference variant {}: {}: {}", jit::describe(reference.variant),
                              edge_cases_[i], *found));
    }
    expected_.push_back(std::move(*expected));
  }
  return {};
}

Result<std::optional<std::string>> Verifier::check(const TrialKernel& candidate) {
  for (std::size_t i = 0; i < edge_cases_.size(); ++i) {
    const auto outcome = runs(candidate, i);
    if (!outcome) return tl::unexpected(outcome.error());
    if (const auto found = disagreement(expected_[i], *outcome)) {
      return fmt::format("edge case \"{}\": {}", edge_cases_[i], *found);
    }
  }
  return std::nullopt;
}

}  // namespace ingot
