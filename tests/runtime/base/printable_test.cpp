#include "runtime/base/printable.hpp"

#include <catch2/catch.hpp>

#include "runtime/base/log.hpp"
#include "tests/support/standard_error.hpp"

using namespace ingot;

TEST_CASE("what could steer a terminal is spelled out, everything else stays", "[cpu][base]") {
  const auto [text, shown] = GENERATE(table<const char*, const char*>({
      {"plain text, \"quotes\" and C:\\path", "plain text, \"quotes\" and C:\\path"},
      {"caf\u00e9 \u6df1\u5ea6 \U0001F600", "caf\u00e9 \u6df1\u5ea6 \U0001F600"},
      {"joined \U0001F468\u200d\U0001F469", "joined \U0001F468\u200d\U0001F469"},
      {"\x1b]0;title\x07", "\\x1b]0;title\\x07"},
      {"a\tb\rc\x7f", "a\\x09b\\x0dc\\x7f"},
      {"a\nb\n  c", "a\\x0ab\\x0a  c"},
      {"caf\xE9", "caf\\xe9"},
      {"\xC0\xAF \xED\xA0\x80", "\\xc0\\xaf \\xed\\xa0\\x80"},
      {"cut \xE6\xB7", "cut \\xe6\\xb7"},
      {"\u009b31m", "\\u{9b}31m"},
      {"\u202egnp.exe", "\\u{202e}gnp.exe"},
      {"\u2066x\u2069\u200f\u2028\ufeff", "\\u{2066}x\\u{2069}\\u{200f}\\u{2028}\\u{feff}"},
      {"\U000E0041", "\\u{e0041}"},
      {"", ""},
  }));
  CHECK(printable(text) == shown);
}

TEST_CASE("JSON that is spelled out is the same document", "[cpu][base]") {
  CHECK(printable_json("{\"a\": \"\x7f\u202e\u009b caf\u00e9 \U000E0041\\u001b\"}\n") ==
        "{\"a\": \"\\u007f\\u202e\\u009b caf\u00e9 \\udb40\\udc41\\u001b\"}\n");
}

TEST_CASE("a message keeps the lines of its list, and no text begins one at the left edge",
          "[cpu][base]") {
  CHECK(printable_message("two problems\n  one\x1b\n  two") == "two problems\n  one\\x1b\n  two");
  CHECK(printable_message("a\ningot: error: forged\n b\n") ==
        "a\\x0aingot: error: forged\\x0a b\\x0a");
}

TEST_CASE("outside text in a log line reaches standard error spelled out", "[cpu][base]") {
  CHECK(test::standard_error_of([] {
          log::error("opening {}: no such file", "\x1b[2J\xFF\u202e\nx");
        }) == "ingot: error: opening \\x1b[2J\\xff\\u{202e}\\x0ax: no such file\n");
}
