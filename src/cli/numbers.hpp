#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"

namespace ingot {

/// Whole numbers as flags give them. "32K" is 32 · 1024, "1M" likewise.
/// Errors: invalid_argument, which names the flag and the range.
[[nodiscard]] Result<std::int64_t> parse_number(std::string_view flag, std::string_view text,
                                                std::int64_t low, std::int64_t high);

/// The words between commas.
std::vector<std::string> split_words(std::string_view text);

/// "1,4,16" → ascending, each once. At least one.
template <class Number>
[[nodiscard]] Result<std::vector<Number>> parse_numbers(std::string_view flag,
                                                        std::string_view text, std::int64_t low,
                                                        std::int64_t high) {
  std::vector<Number> values;
  for (const std::string& word : split_words(text)) {
    const auto value = parse_number(flag, word, low, high);
    if (!value) return Unexpected(value.error());
    values.push_back(static_cast<Number>(*value));
  }
  if (values.empty()) {
    return fail(ErrorCode::invalid_argument, std::string(flag) +
                                                 " needs numbers with commas between, not \"" +
                                                 std::string(text) + "\"");
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

}  // namespace ingot
