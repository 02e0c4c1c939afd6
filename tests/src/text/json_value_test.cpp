#include "src/text/json_value.hpp"

#include <fmt/core.h>

#include <catch2/catch.hpp>

#include "tests/support/peak_memory.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/skip.hpp"

using namespace ingot;

namespace {

std::string refusal(std::string_view json) {
  const auto value = parse_json(json, "x.json");
  if (value) return "accepted";
  CHECK(value.error().code == ErrorCode::corrupt);
  CHECK(value.error().message.starts_with("x.json: "));
  CHECK(value.error().message.size() < 500);
  CHECK(value.error().message.find('\n') == std::string::npos);
  return value.error().message;
}

/// An object of keys k0, k1 … and then `last`.
std::string many_keys(int keys, std::string_view last) {
  std::string json = "{";
  for (int i = 0; i < keys; ++i)
    json += fmt::format("\"k{}\": {}, ", i, i);
  return json + fmt::format("\"{}\": -1}}", last);
}

std::string repeat(std::string_view part, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes)
    text += part;
  return text;
}

}  // namespace

TEST_CASE("a key that is given twice is refused with its path, at any level", "[cpu][text]") {
  const auto [json, path] = GENERATE(table<const char*, const char*>({
      {R"({"a": 1, "a": 1})", R"("a" is given twice)"},
      {R"({"a": 1, "b": 2, "\u0061": 3})", R"("a" is given twice)"},
      {R"({"body": {"messages": [{}, {"content": "x", "content": "y"}]}})",
       R"("body.messages[1].content" is given twice)"},
      {R"([[[1, 2, {"a b": 1, "a b": null}]]])", R"("[0][0][2].a b" is given twice)"},
      {R"({"": 1, "": 1})", R"("" is given twice)"},
  }));
  CAPTURE(json);
  CHECK_THAT(refusal(json), Catch::Contains(path));
}

TEST_CASE("a key that is given twice is found among many", "[cpu][text]") {
  const int keys = GENERATE(15, 16, 17, 50'000);
  CHECK_THAT(refusal(many_keys(keys, "k7")), Catch::Contains("\"k7\" is given twice"));
  CHECK_THAT(refusal(many_keys(keys, fmt::format("k{}", keys - 1))),
             Catch::Contains("is given twice"));
  CHECK(refusal(many_keys(keys, "new")) == "accepted");
}

TEST_CASE("the path of a key that is given twice is cut where it is long", "[cpu][text]") {
  const std::string key(100'000, 'k');
  CHECK_THAT(refusal(fmt::format(R"({{"{}": 1, "{}": 2}})", key, key)),
             Catch::Contains("…\" is given twice"));
  std::string deep;
  for (int i = 0; i < 200; ++i)
    deep += "{\"level\": ";
  CHECK_THAT(refusal(deep + R"({"a": 1, "a": 2})" + std::string(200, '}')),
             Catch::Contains("…\" is given twice"));
}

TEST_CASE("the last of repeated keys wins, at the first one's place, where that is asked for",
          "[cpu][text]") {
  const auto value = parse_json(R"({"a": 1, "b": 2, "a": 3})", "x.json", RepeatedKeys::last_wins);
  REQUIRE(value);
  CHECK(to_python_json(*value) == R"({"a": 3, "b": 2})");
  const auto many = parse_json(many_keys(100, "k7"), "x.json", RepeatedKeys::last_wins);
  REQUIRE(many);
  REQUIRE(many->items.size() == 100);
  CHECK(many->items[7].text == "-1");
}

TEST_CASE("a long text that is broken is refused with its place", "[cpu][text]") {
  const std::string text = "[\"" + repeat("é\\u00e9\\ud83d\\ude00\\n\\\\x", 200'000);
  REQUIRE(parse_json(text + "\"]", "x.json"));
  const auto [end, word] = GENERATE(table<std::string, const char*>({
      {"", "has no end"},
      {"\\", "an escape that is none"},
      {"\\x\"]", "an escape that is none"},
      {"\\u12", "an escape that is none"},
      {"\\u12g4\"]", "an escape that is none"},
      {"\\ud83d\"]", "an escape that is none"},
      {"\\ud83d\\u0041\"]", "an escape that is none"},
      {"\\ude00\"]", "an escape that is none"},
      {"\xff\"]", "bytes that are not UTF-8"},
      {"\xc3\"]", "bytes that are not UTF-8"},
      {"\n\"]", "a control character"},
      {std::string("\0\"]", 3), "a control character"},
  }));
  CAPTURE(end);
  const std::string told = refusal(text + end);
  CHECK_THAT(told, Catch::Contains("the text that begins at byte 1 has") && Catch::Contains(word));
  // What follows a good long text is the parser's to judge.
  CHECK_THAT(refusal(text + "\", " + end), Catch::Contains("not valid JSON"));
}

TEST_CASE("a number of very many digits is refused with its place", "[cpu][text]") {
  CHECK(refusal("[" + std::string(300, '7') + ", 0." + std::string(5000, '7') + "]") == "accepted");
  CHECK_THAT(refusal("[5, " + std::string(100'000, '7') + "]"),
             Catch::Contains("a number of 100000 bytes, which begins at byte 4"));
}

TEST_CASE("refusing a document of 16 MiB takes a few times its bytes", "[cpu][text]") {
  if (test::kSanitized && test::skip("a sanitizer's memory would be measured")) return;
  constexpr std::size_t kBytes = (std::size_t{16} << 20) - 100;  // of the longest that is read
  const std::string json = GENERATE_COPY(
      "[\"" + repeat("\\u00e9", kBytes), "[\"" + repeat("x", kBytes) + "\\u12",
      "[\"" + repeat("\xc3\xa9", kBytes) + "\xff\"]", "[" + repeat("7", kBytes),
      repeat("[", kBytes), "[" + repeat("0,", kBytes), "[" + repeat("{\"a\":{},", kBytes),
      "[" + repeat("\"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwx\",", kBytes),
      many_keys(400'000, "abcdefghijklmnopqrst"), "{\"" + repeat("k", kBytes) + "\": 1, ");
  const std::size_t grown = test::peak_memory_of([&] {
    if (parse_json(json, "x.json")) throw std::runtime_error("accepted");
  });
  CAPTURE(json.substr(0, 20));
  CHECK(grown < 70'000'000);
}
