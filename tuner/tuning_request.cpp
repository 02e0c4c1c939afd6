#include "tuner/tuning_request.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/hash.hpp"

namespace ingot {

std::vector<std::string> TuningRequest::families() const {
  std::vector<std::string> stems;
  for (const jit::Variant& candidate : candidates) {
    if (std::find(stems.begin(), stems.end(), candidate.family) == stems.end()) {
      stems.push_back(candidate.family);
    }
  }
  return stems;
}

std::string TuningRequest::title() const {
  return fmt::format("{} {}", fmt::join(families(), "+"), describe(problem));
}

bool TuningRequest::has_candidate(const jit::Variant& variant) const {
  return std::find(candidates.begin(), candidates.end(), variant) != candidates.end();
}

std::string TuningRequest::space_digest() const {
  std::string text;
  for (const jit::Variant& candidate : candidates)
    text += jit::describe(candidate) + "\n";
  for (const auto& [rule, count] : rejections)
    text += fmt::format("rejected {} by {}\n", count, rule);
  return digest_of(text).hex();
}

}  // namespace ingot
