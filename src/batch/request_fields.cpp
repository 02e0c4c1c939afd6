#include "src/batch/request_fields.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace ingot {

std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::size_t end = std::min(text.size(), kLongest);
  // Never half a character: the message itself goes into JSON.
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  return to_python_json(text.substr(0, end)) + (end < text.size() ? "…" : "");
}

std::optional<double> json_number(const JsonValue& value) {
  if (value.kind != JsonValue::Kind::number) return std::nullopt;
  double number = 0;
  const char* const end = value.text.data() + value.text.size();
  const auto [stop, error] = std::from_chars(value.text.data(), end, number);
  if (error == std::errc::result_out_of_range) return HUGE_VAL;
  if (error != std::errc{} || stop != end) return std::nullopt;
  return number;
}

std::optional<std::int64_t> json_integer(const JsonValue& value) {
  if (value.kind != JsonValue::Kind::number) return std::nullopt;
  std::int64_t number = 0;
  const char* const end = value.text.data() + value.text.size();
  const auto [stop, error] = std::from_chars(value.text.data(), end, number);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return number;
}

const JsonValue* RequestFields::any(std::string_view name) {
  known_.emplace(name);
  const JsonValue* value = object_.find(name);
  return value == nullptr || value->kind == JsonValue::Kind::null ? nullptr : value;
}

Result<const JsonValue*> RequestFields::of_kind(std::string_view name, JsonValue::Kind kind) {
  const JsonValue* value = any(name);
  if (value != nullptr && value->kind != kind) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} must be {}, not {}", full_name(name), json_kind_name(kind),
                            json_kind_name(value->kind)));
  }
  return value;
}

Result<std::optional<std::string>> RequestFields::string(std::string_view name) {
  const auto value = of_kind(name, JsonValue::Kind::string);
  if (!value) return Unexpected(value.error());
  if (*value == nullptr) return std::optional<std::string>();
  return std::optional((*value)->text);
}

Result<std::optional<bool>> RequestFields::boolean(std::string_view name) {
  const auto value = of_kind(name, JsonValue::Kind::boolean);
  if (!value) return Unexpected(value.error());
  if (*value == nullptr) return std::optional<bool>();
  return std::optional((*value)->boolean);
}

Result<std::optional<double>> RequestFields::number(std::string_view name) {
  const auto value = of_kind(name, JsonValue::Kind::number);
  if (!value) return Unexpected(value.error());
  if (*value == nullptr) return std::optional<double>();
  return json_number(**value);
}

Result<std::optional<std::int64_t>> RequestFields::integer(std::string_view name) {
  const auto value = of_kind(name, JsonValue::Kind::number);
  if (!value) return Unexpected(value.error());
  if (*value == nullptr) return std::optional<std::int64_t>();
  const auto whole = json_integer(**value);
  if (!whole) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} must be a whole number of at most 64 bits, not {}", full_name(name),
                            (*value)->text.substr(0, 40)));
  }
  return whole;
}

Result<void> RequestFields::no_others() const {
  for (const std::string& key : object_.keys) {
    if (known_.contains(key)) continue;
    return fail(ErrorCode::invalid_argument,
                fmt::format("unknown field {} in {}; --ignore-unknown lets it pass", shown(key),
                            path_.empty() ? "the request" : path_.substr(0, path_.size() - 1)));
  }
  return {};
}

}  // namespace ingot
