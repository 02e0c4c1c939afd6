#include "src/batch/line_template.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "src/batch/line_reader.hpp"
#include "src/text/utf8.hpp"

namespace ingot {
namespace {

constexpr std::string_view kOpen = "{{";
constexpr std::string_view kClose = "}}";
constexpr std::size_t kMostShownBytes = 60;  // of a text, in a message

bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return c >= 0x80 || c == '_' || c == '-' || c == '.' || (c >= '0' && c <= '9') ||
           (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

/// The next hole of a text: where it begins and ends, and its name. Braces around anything else are
/// text.
struct Hole {
  std::size_t begin, end;
  std::string_view name;
};
std::optional<Hole> next_hole(std::string_view text, std::size_t from) {
  for (std::size_t at = text.find(kOpen, from); at != std::string_view::npos;
       at = text.find(kOpen, at + 1)) {
    const std::size_t close = text.find(kClose, at + kOpen.size());
    if (close == std::string_view::npos) return std::nullopt;
    std::string_view name = text.substr(at + kOpen.size(), close - at - kOpen.size());
    while (name.starts_with(' '))
      name.remove_prefix(1);
    while (name.ends_with(' '))
      name.remove_suffix(1);
    if (is_name(name)) return Hole{at, close + kClose.size(), name};
  }
  return std::nullopt;
}

bool has_hole(const JsonValue& value) {
  if (value.kind == JsonValue::Kind::string) return next_hole(value.text, 0).has_value();
  return std::any_of(value.items.begin(), value.items.end(), has_hole);
}

/// A text with braces that are opened for a field and never closed; nullptr if there is none.
const JsonValue* unclosed_hole(const JsonValue& value) {
  if (value.kind == JsonValue::Kind::string) {
    std::string_view rest = value.text;
    while (const auto hole = next_hole(rest, 0))
      rest.remove_prefix(hole->end);
    const std::size_t open = rest.rfind(kOpen);
    const bool is_open =
        open != std::string_view::npos && rest.find(kClose, open) == std::string_view::npos;
    return is_open ? &value : nullptr;
  }
  for (const JsonValue& item : value.items) {
    if (const JsonValue* found = unclosed_hole(item)) return found;
  }
  return nullptr;
}

const JsonValue* field_of(const JsonValue& fields, std::string_view path) {
  // A key may hold dots itself.
  if (const JsonValue* whole = fields.find(path)) return whole;
  const std::size_t dot = path.find('.');
  if (dot == std::string_view::npos) return nullptr;
  const JsonValue* outer = fields.find(path.substr(0, dot));
  if (outer == nullptr || outer->kind != JsonValue::Kind::object) return nullptr;
  return field_of(*outer, path.substr(dot + 1));
}

/// @param room  bytes that all texts together may still have
Result<void> fill_holes(JsonValue& value, const JsonValue& fields, std::size_t& room) {
  if (value.kind != JsonValue::Kind::string) {
    for (JsonValue& item : value.items) {
      if (auto filled = fill_holes(item, fields, room); !filled) return filled;
    }
    return {};
  }
  const auto take = [&](std::string_view text, std::string& to) {
    if (text.size() > room) return false;
    room -= text.size();
    to += text;
    return true;
  };
  const auto too_long = [] {
    return fail(ErrorCode::invalid_argument,
                fmt::format("the line fills the template with more than {} MiB; shorten its fields",
                            kMaxLineBytes >> 20));
  };
  std::string out;
  std::size_t at = 0;
  while (const auto hole = next_hole(value.text, at)) {
    const JsonValue* field = field_of(fields, hole->name);
    if (field == nullptr) {
      return fail(
          ErrorCode::invalid_argument,
          fmt::format("the template asks for the field \"{}\", which the line lacks; give it there",
                      hole->name));
    }
    const std::string json =
        field->kind == JsonValue::Kind::string ? std::string() : to_python_json(*field);
    if (!take(std::string_view(value.text).substr(at, hole->begin - at), out) ||
        !take(field->kind == JsonValue::Kind::string ? field->text : json, out)) {
      return too_long();
    }
    at = hole->end;
  }
  if (!take(std::string_view(value.text).substr(at), out)) return too_long();
  if (at == 0) return {};
  value.text = std::move(out);
  return {};
}

}  // namespace

Result<LineTemplate> LineTemplate::parse(std::string_view json, std::string_view origin) {
  auto parsed = parse_json(json, origin);
  if (!parsed) {
    return fail(parsed.error().code,
                fmt::format("reading template {}; correct the file", parsed.error().message));
  }
  JsonValue body = std::move(*parsed);
  if (body.kind == JsonValue::Kind::array) {
    JsonValue messages = std::exchange(body, {});
    body.kind = JsonValue::Kind::object;
    body.keys.emplace_back("messages");
    body.items.push_back(std::move(messages));
  }
  const JsonValue* messages =
      body.kind == JsonValue::Kind::object ? body.find("messages") : nullptr;
  const auto refuse = [&](std::string_view why) {
    return fail(ErrorCode::invalid_argument, fmt::format("reading template {}: {}", origin, why));
  };
  const bool has_messages =
      messages != nullptr && messages->kind == JsonValue::Kind::array &&
      std::all_of(messages->items.begin(), messages->items.end(),
                  [](const JsonValue& item) { return item.kind == JsonValue::Kind::object; });
  if (!has_messages) {
    return refuse(
        "it is no body of a chat completion; give an object with `messages`, or an array of "
        "messages alone, as [{\"role\": \"user\", \"content\": \"Translate: {{text}}\"}]");
  }
  if (const JsonValue* text = unclosed_hole(body)) {
    return refuse(fmt::format("the {{{{ in {} is not closed; write {{{{field}}}}",
                              to_python_json(std::string(cut_utf8(text->text, kMostShownBytes)))));
  }
  if (!has_hole(body)) {
    return refuse(
        "it has no {{field}} in it, so every line would get the same answer; put one where a "
        "line's field belongs");
  }
  return LineTemplate(std::move(body));
}

Result<JsonValue> LineTemplate::fill(const JsonValue& fields) const {
  JsonValue body = body_;
  std::size_t room = kMaxLineBytes;
  if (auto filled = fill_holes(body, fields, room); !filled) return Unexpected(filled.error());
  return body;
}

}  // namespace ingot
