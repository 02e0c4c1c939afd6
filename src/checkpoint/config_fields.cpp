#include "src/checkpoint/config_fields.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace ingot {

using nlohmann::json;

std::string shown(const json& value) {
  constexpr std::size_t kMostBytes = 60;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMostBytes) text = text.substr(0, kMostBytes) + "…";
  return text;
}

bool ConfigFields::has(std::string_view key) const {
  return object_.contains(std::string(key));
}

const json* ConfigFields::find(std::string_view key) {
  const auto found = object_.find(std::string(key));
  if (found == object_.end()) {
    bad(key, "is missing");
    return nullptr;
  }
  return &*found;
}

std::int64_t ConfigFields::integer(std::string_view key, std::int64_t min, std::int64_t max) {
  const json* value = find(key);
  if (value == nullptr) return min;
  if (!value->is_number_integer()) {
    bad(key, fmt::format("is {}, not an integer", shown(*value)));
    return min;
  }
  // Beyond int64 only unsigned values are possible, and those are beyond every max.
  const bool huge = value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX;
  if (huge || value->get<std::int64_t>() < min || value->get<std::int64_t>() > max) {
    bad(key, fmt::format("is {}, outside {}..{}", shown(*value), min, max));
    return min;
  }
  return value->get<std::int64_t>();
}

int ConfigFields::size(std::string_view key, std::int64_t max, std::int64_t min) {
  return static_cast<int>(integer(key, min, max));
}

double ConfigFields::number(std::string_view key, double min, double max) {
  const json* value = find(key);
  if (value == nullptr) return min;
  if (!value->is_number()) {
    bad(key, fmt::format("is {}, not a number", shown(*value)));
    return min;
  }
  const double number = value->get<double>();
  if (!(number >= min && number <= max)) {
    bad(key, fmt::format("is {}, outside {}..{}", shown(*value), min, max));
    return min;
  }
  return number;
}

void ConfigFields::expect(std::string_view key, const json& only) {
  if (has(key)) require(key, only);
}

void ConfigFields::require(std::string_view key, const json& only) {
  const json* value = find(key);
  if (value != nullptr && *value != only) {
    unsupported(key, fmt::format("is {}; only {} is supported", shown(*value), shown(only)));
  }
}

void ConfigFields::bad(std::string_view key, std::string_view why) {
  problems_.add(ErrorCode::corrupt, fmt::format("{}{} {}", prefix_, key, why));
}

void ConfigFields::unsupported(std::string_view key, std::string_view why) {
  problems_.add(ErrorCode::unsupported, fmt::format("{}{} {}", prefix_, key, why));
}

}  // namespace ingot
