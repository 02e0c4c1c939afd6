#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/error.hpp"

namespace ingot {

/// JSON as Python's json module holds it: object keys keep their order, integers all their digits.
struct JsonValue {
  enum class Kind { null, boolean, number, string, array, object };

  Kind kind = Kind::null;
  bool boolean = false;
  std::string text;               ///< a string's bytes; a number as Python prints it
  std::vector<std::string> keys;  ///< an object's keys, beside `items`
  std::vector<JsonValue> items;   ///< an array's elements, or an object's values

  /// The value of an object's key, or nullptr.
  const JsonValue* find(std::string_view key) const;
  JsonValue* find(std::string_view key);
};

/// "null", "a boolean", "a number" … for error messages.
std::string_view json_kind_name(JsonValue::Kind kind);

/// Nesting beyond this is refused: whoever walks a JsonValue may recurse.
inline constexpr int kMaxJsonDepth = 256;
/// Documents of more values are refused: each takes some 100 bytes, also where the text has two.
/// A bias for every token of a vocabulary fits.
inline constexpr std::size_t kMaxJsonValues = 160'000;

/// What becomes of a key that an object gives twice. Whoever wrote it meant one of the two values,
/// so documents of users are refused.
enum class RepeatedKeys {
  refuse,
  last_wins,  ///< at the first one's place, as Python's json module has it
};

/// Strict JSON in UTF-8. Error: corrupt, "<origin>: …" with line and column, or the key's path.
[[nodiscard]] Result<JsonValue> parse_json(std::string_view json, std::string_view origin,
                                           RepeatedKeys repeated = RepeatedKeys::refuse);

/// json.dumps(value, ensure_ascii=False): ", " and ": ", non-ASCII raw.
std::string to_python_json(const JsonValue& value);
/// One string with its quotes, as above.
std::string to_python_json(std::string_view text);
/// repr() of a Python float: the shortest digits that read back as the same number.
std::string python_float(double value);

/// Puts JsonValues together from the events of a parser, each of a bounded number of values.
class JsonBuilder {
 public:
  explicit JsonBuilder(std::size_t max_values, RepeatedKeys repeated = RepeatedKeys::refuse)
      : max_values_(max_values), repeated_(repeated) {}

  /// Each returns why the event cannot be taken, or an empty string.
  std::string add(JsonValue value);
  std::string open(JsonValue::Kind kind);
  std::string key(std::string name);
  void close();

  /// Whether a whole value lies ready.
  bool done() const { return done_; }
  /// The value; the next one begins.
  JsonValue take();

 private:
  struct Level {
    JsonValue value;
    std::string key;                                        ///< of an object's next item
    std::size_t place = 0;                                  ///< where that goes
    std::unordered_map<std::uint64_t, std::size_t> places;  ///< of many keys, by their hashes
  };
  static std::size_t place_of(Level& level);
  std::string count();
  std::string path() const;
  void put(JsonValue value);

  std::size_t max_values_;
  RepeatedKeys repeated_;
  std::size_t values_ = 0;
  std::vector<Level> open_;
  JsonValue root_;
  bool done_ = false;
};

}  // namespace ingot
