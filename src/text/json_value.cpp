#include "src/text/json_value.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/checkpoint/strict_json.hpp"
#include "src/text/utf8.hpp"

namespace ingot {
namespace {

/// Objects with more keys than this find a repeated key by hash.
constexpr std::size_t kManyKeys = 16;

/// A double's shortest digits d.ddd and its decimal exponent.
struct Digits {
  std::string digits;
  int exponent;
};

Digits shortest_digits(double magnitude) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), magnitude,
                                 std::chars_format::scientific)
                       .ptr;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t e = text.find('e');
  Digits result;
  for (const char c : text.substr(0, e)) {
    if (c != '.') result.digits += c;
  }
  const std::string_view exponent = text.substr(text[e + 1] == '+' ? e + 2 : e + 1);
  std::from_chars(exponent.data(), exponent.data() + exponent.size(), result.exponent);
  return result;
}

/// Feeds a JsonBuilder from nlohmann's parser.
class ValueHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit ValueHandler(RepeatedKeys repeated) : builder_(kMaxJsonValues, repeated) {}

  bool null() override { return put({}); }
  bool boolean(bool value) override { return put({JsonValue::Kind::boolean, value, {}, {}, {}}); }
  bool number_integer(number_integer_t value) override { return number(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return number(std::to_string(value)); }
  bool number_float(number_float_t value, const string_t& source) override {
    // An integer beyond 64 bits arrives here too: Python keeps its digits.
    const bool integer = source.find_first_of(".eE") == std::string::npos;
    return number(integer ? source : python_float(value));
  }
  bool string(string_t& value) override {
    return put({JsonValue::Kind::string, false, std::move(value), {}, {}});
  }
  bool binary(binary_t&) override { return false; }  // not in JSON text
  bool start_object(std::size_t) override { return open(JsonValue::Kind::object); }
  bool start_array(std::size_t) override { return open(JsonValue::Kind::array); }
  bool key(string_t& name) override { return note(builder_.key(std::move(name))); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& e) override {
    problem_ = "not valid JSON: " + json_error_text(e.what());
    return false;
  }

  JsonValue take() { return builder_.take(); }
  const std::string& problem() const { return problem_; }

 private:
  bool note(std::string problem) {
    problem_ = std::move(problem);
    return problem_.empty();
  }
  bool put(JsonValue value) { return note(builder_.add(std::move(value))); }
  bool number(std::string text) {
    return put({JsonValue::Kind::number, false, std::move(text), {}, {}});
  }
  bool open(JsonValue::Kind kind) { return note(builder_.open(kind)); }
  bool close() {
    builder_.close();
    return true;
  }

  JsonBuilder builder_;
  std::string problem_;
};

/// How many bytes of a text's escape are good; 0 where it is none.
std::size_t escape_bytes(std::string_view text, std::size_t at) {
  const auto unit_at = [&](std::size_t place) -> std::optional<unsigned> {
    unsigned unit = 0;
    const std::string_view digits = text.substr(std::min(place + 2, text.size()), 4);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), unit, 16);
    if (!text.substr(std::min(place, text.size())).starts_with("\\u") || digits.size() != 4 ||
        error != std::errc{} || end != digits.data() + 4) {
      return std::nullopt;
    }
    return unit;
  };
  const std::string_view rest = text.substr(at);
  if (rest.size() < 2) return 0;
  if (rest[1] != 'u') return std::string_view("\"\\/bfnrt").find(rest[1]) != rest.npos ? 2 : 0;
  const auto unit = unit_at(at);
  if (!unit || (*unit >= 0xDC00 && *unit < 0xE000)) return 0;
  if (*unit < 0xD800 || *unit >= 0xE000) return 6;
  const auto low = unit_at(at + 6);
  return low && *low >= 0xDC00 && *low < 0xE000 ? 12 : 0;
}

/// What is wrong with the text that begins (with its quote) at `at`, or where it ends.
struct CheckedText {
  std::string_view problem;
  std::size_t end;
};
CheckedText check_text(std::string_view json, std::size_t at) {
  for (std::size_t place = at + 1; place < json.size();) {
    const auto byte = static_cast<unsigned char>(json[place]);
    std::size_t bytes = 1;
    if (byte == '"') return {{}, place + 1};
    if (byte < 0x20) return {"a control character that is not escaped", place};
    if (byte == '\\') {
      bytes = escape_bytes(json, place);
      if (bytes == 0) return {"an escape that is none", place};
    } else if (byte >= 0x80) {
      const Utf8Part part = next_utf8(json, place);
      if (part.kind != Utf8Part::Kind::character) return {"bytes that are not UTF-8", place};
      bytes = part.bytes;
    }
    place += bytes;
  }
  return {"no end", json.size()};
}

/// What is wrong with a long text or number, or empty. The parser would say it too, but keeps
/// several copies of either for its message; short ones are left to it.
std::string broken_long_token(std::string_view json) {
  constexpr std::size_t kShort = std::size_t{1} << 16;
  if (json.size() <= kShort) return {};
  constexpr std::string_view kBegins = "\"-0123456789";
  for (std::size_t at = json.find_first_of(kBegins); at != json.npos;) {
    std::size_t end = 0;
    if (json[at] == '"') {
      const auto [problem, place] = check_text(json, at);
      if (!problem.empty()) {
        if (place - at <= kShort) return {};
        return fmt::format("not valid JSON: the text that begins at byte {} has {}, at byte {}", at,
                           problem, place);
      }
      end = place;
    } else {
      end = std::min(json.find_first_not_of("0123456789+-.eE", at), json.size());
      if (end - at > kShort) {
        return fmt::format("a number of {} bytes, which begins at byte {}, is not supported",
                           end - at, at);
      }
    }
    at = json.find_first_of(kBegins, end);
  }
  return {};
}

void print(const JsonValue& value, std::string& out);

void print_members(const JsonValue& value, std::string& out) {
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    if (i > 0) out += ", ";
    if (value.kind == JsonValue::Kind::object) out += to_python_json(value.keys[i]) + ": ";
    print(value.items[i], out);
  }
}

void print(const JsonValue& value, std::string& out) {
  switch (value.kind) {
    case JsonValue::Kind::null:
      out += "null";
      break;
    case JsonValue::Kind::boolean:
      out += value.boolean ? "true" : "false";
      break;
    case JsonValue::Kind::number:
      out += value.text;
      break;
    case JsonValue::Kind::string:
      out += to_python_json(value.text);
      break;
    case JsonValue::Kind::array:
      out += '[';
      print_members(value, out);
      out += ']';
      break;
    case JsonValue::Kind::object:
      out += '{';
      print_members(value, out);
      out += '}';
      break;
  }
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == key) return &items[i];
  }
  return nullptr;
}

JsonValue* JsonValue::find(std::string_view key) {
  return const_cast<JsonValue*>(std::as_const(*this).find(key));
}

std::string_view json_kind_name(JsonValue::Kind kind) {
  switch (kind) {
    case JsonValue::Kind::null:
      return "null";
    case JsonValue::Kind::boolean:
      return "a boolean";
    case JsonValue::Kind::number:
      return "a number";
    case JsonValue::Kind::string:
      return "a string";
    case JsonValue::Kind::array:
      return "an array";
    case JsonValue::Kind::object:
      return "an object";
  }
  return "";
}

std::string JsonBuilder::count() {
  if (++values_ <= max_values_) return {};
  return fmt::format("more than {} JSON values", max_values_);
}

std::string JsonBuilder::add(JsonValue value) {
  std::string problem = count();
  if (problem.empty()) put(std::move(value));
  return problem;
}

std::string JsonBuilder::open(JsonValue::Kind kind) {
  if (open_.size() == static_cast<std::size_t>(kMaxJsonDepth)) return "nested too deeply";
  std::string problem = count();
  if (problem.empty()) {
    open_.emplace_back();
    open_.back().value.kind = kind;
  }
  return problem;
}

void JsonBuilder::close() {
  JsonValue value = std::move(open_.back().value);
  open_.pop_back();
  put(std::move(value));
}

// Of the key that was named last; one past the others where it is new.
std::size_t JsonBuilder::place_of(Level& level) {
  const std::vector<std::string>& keys = level.value.keys;
  const auto find = [&](const std::vector<std::string>& in) {
    return static_cast<std::size_t>(std::find(in.begin(), in.end(), level.key) - in.begin());
  };
  if (keys.size() < kManyKeys) return find(keys);
  const auto hash = [](const std::string& key) { return XXH3_64bits(key.data(), key.size()); };
  if (level.places.empty()) {
    for (std::size_t i = 0; i < keys.size(); ++i)
      level.places.emplace(hash(keys[i]), i);
  }
  const std::size_t place = level.places.emplace(hash(level.key), keys.size()).first->second;
  if (place == keys.size() || keys[place] == level.key) return place;
  return find(keys);  // two keys of one hash
}

std::string JsonBuilder::key(std::string name) {
  Level& level = open_.back();
  level.key = std::move(name);
  level.place = place_of(level);
  if (level.place == level.value.keys.size() || repeated_ == RepeatedKeys::last_wins) return {};
  return fmt::format("{} is given twice; leave one of them out", path());
}

// "body.messages[3].content" in quotes: where the next value goes.
std::string JsonBuilder::path() const {
  constexpr std::size_t kLongestKey = 60;
  constexpr std::size_t kLongest = 200;
  std::string path;
  for (const Level& level : open_) {
    if (level.value.kind == JsonValue::Kind::array) {
      path += fmt::format("[{}]", level.value.items.size());
    } else {
      const std::string_view begin = cut_utf8(level.key, kLongestKey);
      path += fmt::format("{}{}{}", path.empty() ? "" : ".", begin,
                          begin.size() < level.key.size() ? "…" : "");
    }
    // Of a deep place the beginning tells most.
    if (path.size() > kLongest) return to_python_json(path + "…");
  }
  return to_python_json(path);
}

void JsonBuilder::put(JsonValue value) {
  if (open_.empty()) {
    root_ = std::move(value);
    done_ = true;
    return;
  }
  Level& level = open_.back();
  if (level.value.kind == JsonValue::Kind::object) {
    if (level.place < level.value.keys.size()) {
      level.value.items[level.place] = std::move(value);
      return;
    }
    level.value.keys.push_back(std::move(level.key));
  }
  level.value.items.push_back(std::move(value));
}

JsonValue JsonBuilder::take() {
  done_ = false;
  values_ = 0;
  return std::move(root_);
}

Result<JsonValue> parse_json(std::string_view json, std::string_view origin,
                             RepeatedKeys repeated) {
  if (const std::string problem = broken_long_token(json); !problem.empty()) {
    return fail(ErrorCode::corrupt, fmt::format("{}: {}", origin, problem));
  }
  ValueHandler handler(repeated);
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &handler)) {
    return fail(ErrorCode::corrupt, fmt::format("{}: {}", origin, handler.problem()));
  }
  return handler.take();
}

std::string to_python_json(const JsonValue& value) {
  std::string out;
  print(value, out);
  return out;
}

std::string to_python_json(std::string_view text) {
  std::string out = "\"";
  out.reserve(text.size() + 2);
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
  return out;
}

std::string python_float(double value) {
  if (std::isnan(value)) return "NaN";
  const std::string sign = std::signbit(value) ? "-" : "";
  if (std::isinf(value)) return sign + "Infinity";
  if (value == 0) return sign + "0.0";
  const auto [digits, exponent] = shortest_digits(std::abs(value));
  const int count = static_cast<int>(digits.size());
  // Python writes a positional number for exponents -4 to 15, else d.ddde+XX.
  if (exponent < -4 || exponent >= 16) {
    const std::string tail = count > 1 ? "." + digits.substr(1) : "";
    return fmt::format("{}{}{}e{}{:02}", sign, digits[0], tail, exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  if (exponent < 0) {
    return fmt::format("{}0.{}{}", sign, std::string(static_cast<std::size_t>(-exponent - 1), '0'),
                       digits);
  }
  if (exponent + 1 >= count) {
    return fmt::format("{}{}{}.0", sign, digits,
                       std::string(static_cast<std::size_t>(exponent + 1 - count), '0'));
  }
  const std::size_t point = static_cast<std::size_t>(exponent) + 1;
  return fmt::format("{}{}.{}", sign, digits.substr(0, point), digits.substr(point));
}

}  // namespace ingot
