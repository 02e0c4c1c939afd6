#include "src/checkpoint/problems.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ingot {

Error Problems::to_error(std::string_view attempt) const {
  constexpr std::size_t kMostLines = 1000;
  if (list_.size() == 1) {
    return Error{list_[0].code, fmt::format("{}: {}", attempt, list_[0].text)};
  }
  std::string message = fmt::format("{}: {} problems", attempt, size());
  for (std::size_t i = 0; i < std::min(list_.size(), kMostLines); ++i) {
    message += "\n  " + list_[i].text;
  }
  if (list_.size() > kMostLines) {
    message += fmt::format("\n  and {} more", list_.size() - kMostLines);
  }
  return Error{list_[0].code, std::move(message)};
}

std::string counted(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMostBytes = 120;
  std::string out = "\"";
  for (const char c : text.substr(0, kMostBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + (text.size() > kMostBytes ? "\"…" : "\"");
}

}  // namespace ingot
