#pragma once

#include <string_view>

#include "runtime/base/error.hpp"
#include "src/text/json_value.hpp"

namespace ingot {

/// A request's body with holes: {{name}} in any of its strings stands for a field of the line that
/// it is filled with; {{a.b}} for a field of a field. A text goes in as it is, everything else as
/// JSON. Immutable.
class LineTemplate {
 public:
  /// The body of a chat completion (an object with `messages`), or the messages alone.
  /// Errors: corrupt for broken JSON; invalid_argument for another shape, or one without a hole.
  [[nodiscard]] static Result<LineTemplate> parse(std::string_view json, std::string_view origin);

  /// The body for a line. Error: invalid_argument that names the field which the line lacks.
  [[nodiscard]] Result<JsonValue> fill(const JsonValue& fields) const;

 private:
  explicit LineTemplate(JsonValue body) : body_(std::move(body)) {}

  JsonValue body_;
};

}  // namespace ingot
