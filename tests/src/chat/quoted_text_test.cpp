#include "src/chat/quoted_text.hpp"

#include <catch2/catch.hpp>

using namespace ingot;

using Texts = std::vector<std::string>;

TEST_CASE("quotes around a whole value are taken off, and no others", "[cpu][chat]") {
  const auto [typed, meant] = GENERATE(table<std::string, std::string>({
      {"plain", "plain"},
      {"", ""},
      {R"("")", ""},
      {"''", ""},
      {R"("a b")", "a b"},
      {"'a b'", "a b"},
      {R"("none")", "none"},
      {R"("a" or "b")", R"("a" or "b")"},
      {R"("open)", R"("open)"},
      {R"(")", R"(")"},
      {R"(it's)", R"(it's)"},
      {R"("a \"b\" c")", R"(a "b" c)"},
      {R"("one\ntwo\tthree\x1b\\")", "one\ntwo\tthree\x1b\\"},
      {R"('one\ntwo')", R"(one\ntwo)"},
      {R"("C:\dir \xfg \x4")", R"(C:\dir \xfg \x4)"},
      {R"("caf\xC3\xa9")", "caf\xC3\xA9"},
      {R"("\xff")", "\xFF"},
      {R"("ends in \")", R"("ends in \")"},
      {"\"caf\xC3\xA9\"", "caf\xC3\xA9"},
  }));
  CAPTURE(typed);
  CHECK(unquoted(typed) == meant);
}

TEST_CASE("quoted texts behind each other are a list", "[cpu][chat]") {
  CHECK(quoted_list(R"("a b")") == Texts{"a b"});
  CHECK(quoted_list(R"("")") == Texts{""});
  CHECK(quoted_list("\"a\" 'b c'\t\"\\n\"") == Texts{"a", "b c", "\n"});
  for (const char* other : {"", "a", R"("a" b)", R"("a""b")", R"("a)", R"(a "b")"}) {
    CAPTURE(other);
    CHECK(!quoted_list(other));
  }
}
