#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"
#include "src/text/json_value.hpp"

namespace ingot {

/// Reads the fields of one JSON object by name and type, and remembers which were asked for. A null
/// counts as absent. Errors are invalid_argument and name the field.
class RequestFields {
 public:
  /// @param path in front of field names in messages: "" or "body."
  RequestFields(const JsonValue& object, std::string path)
      : object_(object), path_(std::move(path)) {}

  /// The value as it stands, or nullptr where absent or null.
  const JsonValue* any(std::string_view name);
  /// As any(), of one kind.
  [[nodiscard]] Result<const JsonValue*> of_kind(std::string_view name, JsonValue::Kind kind);
  [[nodiscard]] Result<std::optional<std::string>> string(std::string_view name);
  [[nodiscard]] Result<std::optional<bool>> boolean(std::string_view name);
  [[nodiscard]] Result<std::optional<double>> number(std::string_view name);
  [[nodiscard]] Result<std::optional<std::int64_t>> integer(std::string_view name);

  /// Error if the object has a field that nobody has asked for.
  [[nodiscard]] Result<void> no_others() const;

  std::string full_name(std::string_view name) const { return path_ + std::string(name); }

 private:
  const JsonValue& object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
};

/// A JSON number as a double (an overflow is infinite); nullopt where it is none.
std::optional<double> json_number(const JsonValue& value);
/// A JSON number without fraction and exponent, in the range of 64 bits.
std::optional<std::int64_t> json_integer(const JsonValue& value);
/// Outside text for a message: in quotes, on one line, cut.
std::string shown(std::string_view text);

}  // namespace ingot
