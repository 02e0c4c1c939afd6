#include "src/sampler/stop_matcher.hpp"

#include <algorithm>
#include <utility>

namespace ingot {
namespace {

std::uint32_t advance(std::string_view text, const std::vector<std::uint32_t>& border,
                      std::uint32_t matched, char next) {
  while (matched > 0 && text[matched] != next)
    matched = border[matched - 1];
  return text[matched] == next ? matched + 1 : 0;
}

}  // namespace

StopMatcher::StopMatcher(std::span<const std::string> stops) {
  for (const std::string& stop : stops) {
    Pattern pattern{stop, std::vector<std::uint32_t>(stop.size(), 0), 0};
    for (std::size_t i = 1; i < stop.size(); ++i) {
      pattern.border[i] = advance(stop, pattern.border, pattern.border[i - 1], stop[i]);
    }
    patterns_.push_back(std::move(pattern));
  }
}

std::string StopMatcher::push(std::string_view text) {
  if (matched()) return {};
  if (patterns_.empty()) return std::string(text);
  held_ += text;
  std::size_t at = held_.size() - text.size();
  std::uint32_t open = 0;  // bytes at the end of the stream that may still become a stop string
  for (const char byte : text) {
    ++at;
    open = 0;
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      Pattern& pattern = patterns_[i];
      pattern.matched = advance(pattern.text, pattern.border, pattern.matched, byte);
      open = std::max(open, pattern.matched);
      if (pattern.matched < pattern.text.size()) continue;
      if (!matched() ||
          pattern.text.size() > patterns_[static_cast<std::size_t>(matched_)].text.size()) {
        matched_ = static_cast<int>(i);
      }
    }
    if (matched()) {
      std::string before =
          held_.substr(0, at - patterns_[static_cast<std::size_t>(matched_)].text.size());
      held_.clear();
      return before;
    }
  }
  if (text.empty()) return {};
  std::string released = held_.substr(0, held_.size() - open);
  held_.erase(0, held_.size() - open);
  return released;
}

std::string StopMatcher::flush() {
  for (Pattern& pattern : patterns_)
    pattern.matched = 0;
  return std::exchange(held_, {});
}

}  // namespace ingot
