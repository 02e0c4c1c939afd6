#include "src/cli/numbers.hpp"

#include <fmt/format.h>

#include <charconv>

#include "src/text/utf8.hpp"

namespace ingot {

Result<std::int64_t> parse_number(std::string_view flag, std::string_view text, std::int64_t low,
                                  std::int64_t high) {
  std::string_view digits = text;
  std::int64_t unit = 1;
  if (digits.ends_with('K')) unit = 1 << 10;
  if (digits.ends_with('M')) unit = 1 << 20;
  if (unit > 1) digits.remove_suffix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || value > high / unit ||
      value * unit < low) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} must be a whole number from {} to {}, not \"{}\"", flag, low, high,
                            cut_utf8(text, 60)));
  }
  return value * unit;
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    words.emplace_back(word);
  }
  return words;
}

}  // namespace ingot
