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

namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/// One past the string that starts at `at`; no further than `most` bytes, or the end of the text.
std::size_t end_of_string(std::string_view text, std::size_t at, std::size_t most) {
  const std::size_t last = text.size() - at > most ? at + most : text.size();
  for (++at; at < last; ++at) {
    if (text[at] == '"') return at + 1;
    if (text[at] == '\\') ++at;
  }
  return last;
}

}  // namespace

std::string_view without_padding(std::string_view text) {
  while (!text.empty() && is_blank(text.back()))
    text.remove_suffix(1);
  return text;
}

std::string beyond_bounds(std::string_view text, const JsonBounds& bounds,
                          const std::function<void(std::size_t)>& passed) {
  constexpr std::size_t kStep = std::size_t{1} << 20;
  std::size_t told = 0;
  text = without_padding(text);
  std::size_t tokens = 0;
  std::size_t objects = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (passed && at - told >= kStep) passed(told = at);
    const char c = text[at];
    std::size_t end = at + 1;
    if (c == ',' || c == ':' || c == ']' || c == '}') {
      at = end;
      continue;
    }
    // One byte beyond the bound is enough: what follows need not be read.
    const std::size_t most = bounds.token_bytes + 1;
    if (c == '"') {
      end = end_of_string(text, at, most);
    } else if (is_blank(c)) {
      while (end < text.size() && end - at < most && is_blank(text[end]))
        ++end;
    } else if (c != '{' && c != '[') {
      while (end < text.size() && end - at < most && !is_blank(text[end]) &&
             std::string_view("{}[],:\"").find(text[end]) == std::string_view::npos) {
        ++end;
      }
    }
    if (end - at > bounds.token_bytes) {
      return fmt::format("holds {} of more than {} bytes at byte {}",
                         c == '"'      ? "a text"
                         : is_blank(c) ? "a run of blanks"
                                       : "a number",
                         bounds.token_bytes, at);
    }
    if (!is_blank(c) && ++tokens > bounds.tokens) {
      return fmt::format("holds more than {} values", bounds.tokens);
    }
    if (c == '{' && ++objects > bounds.objects) {
      return fmt::format("holds more than {} objects", bounds.objects);
    }
    at = end;
  }
  return {};
}

Result<nlohmann::json> parse_strict_json(std::string_view text, std::string_view origin) {
  using nlohmann::json;
  if (const std::string problem = beyond_bounds(text, JsonBounds{}); !problem.empty()) {
    return fail(ErrorCode::corrupt, fmt::format("{} {}", origin, problem));
  }
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
