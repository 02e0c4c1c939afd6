#include "src/checkpoint/strict_json.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "src/checkpoint/problems.hpp"

namespace ingot {

std::string json_error_text(std::string_view what) {
  if (const auto end = what.find("] "); what.starts_with("[json") && end != what.npos) {
    what.remove_prefix(end + 2);
  }
  constexpr std::size_t kMostBytes = 300;
  std::string out;
  for (const char c : what.substr(0, kMostBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte >= 0x7F ? '?' : c;
  }
  return what.size() > kMostBytes ? out + "…" : out;
}

Result<nlohmann::json> parse_strict_json(std::string_view text, std::string_view origin) {
  using nlohmann::json;
  constexpr int kDeepest = 64;
  std::vector<std::set<std::string>> keys;  // of every open object, outermost first
  std::string refusal;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) {
      if (depth >= kDeepest && refusal.empty()) {
        refusal = fmt::format("is nested deeper than {} levels", kDeepest);
      }
      if (event == json::parse_event_t::object_start) keys.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == json::parse_event_t::key && refusal.empty()) {
      if (!keys.back().insert(parsed.get<std::string>()).second) {
        refusal = fmt::format("gives the key {} twice", in_quotes(parsed.get<std::string>()));
      }
    }
    return refusal.empty();  // false: the value is dropped, so a hostile document costs no memory
  };
  try {
    json document = json::parse(text, watch);
    if (!refusal.empty()) return fail(ErrorCode::corrupt, fmt::format("{} {}", origin, refusal));
    return document;
  } catch (const json::exception& error) {
    return fail(ErrorCode::corrupt,
                fmt::format("{} is not JSON: {}", origin, json_error_text(error.what())));
  }
}

}  // namespace ingot
