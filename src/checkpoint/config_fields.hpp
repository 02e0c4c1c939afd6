#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "src/checkpoint/problems.hpp"

namespace ingot {

/// Reads typed, bounded fields of one JSON object. What is wrong goes to `problems` and a harmless
/// value is returned, so that a reader goes on and finds the rest. Both references must outlive it.
class ConfigFields {
 public:
  /// @param prefix written before every key in messages, such as "rope_scaling."
  ConfigFields(const nlohmann::json& object, std::string prefix, Problems& problems)
      : object_(object), prefix_(std::move(prefix)), problems_(problems) {}

  bool has(std::string_view key) const;
  /// Required, a JSON integer (10.0 is none) in [min, max].
  std::int64_t integer(std::string_view key, std::int64_t min, std::int64_t max);
  /// The same as int; max must fit.
  int size(std::string_view key, std::int64_t max, std::int64_t min = 1);
  /// Required, any JSON number in [min, max].
  double number(std::string_view key, double min, double max);
  /// Where the key is present, it must be exactly this: we run no other setting.
  void expect(std::string_view key, const nlohmann::json& only);
  /// The same, and the key must be present.
  void require(std::string_view key, const nlohmann::json& only);

  void bad(std::string_view key, std::string_view why);
  void unsupported(std::string_view key, std::string_view why);

 private:
  const nlohmann::json* find(std::string_view key);

  const nlohmann::json& object_;
  std::string prefix_;
  Problems& problems_;
};

/// A JSON value as it appears in a message: compact and cut short.
std::string shown(const nlohmann::json& value);

}  // namespace ingot
