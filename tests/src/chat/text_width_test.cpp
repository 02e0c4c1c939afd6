#include "src/chat/text_width.hpp"

#include <catch2/catch.hpp>
#include <vector>

using namespace ingot;

namespace {

std::vector<std::string> graphemes(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = next_grapheme(text, at);
    out.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

constexpr std::string_view kFamily = "👨‍👩‍👧";
constexpr std::string_view kFlag = "🇩🇪";
constexpr std::string_view kMarked = "e\xCC\x81";  // e and a combining acute

}  // namespace

TEST_CASE("what a reader sees as one character is one step of the cursor", "[cpu][chat]") {
  const std::string text = "a" + std::string(kMarked) + std::string(kFamily) + std::string(kFlag) +
                           std::string(kFlag) + "中z";
  const std::vector<std::string> parts{
      "a", std::string(kMarked), std::string(kFamily), std::string(kFlag), std::string(kFlag), "中",
      "z"};
  CHECK(graphemes(text) == parts);
  std::size_t at = text.size();
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    const std::size_t begin = previous_grapheme(text, at);
    CHECK(text.substr(begin, at - begin) == *part);
    at = begin;
  }
  CHECK(at == 0);
}

TEST_CASE("bytes that are not UTF-8 stand alone", "[cpu][chat]") {
  CHECK(graphemes("a\xFFz") == std::vector<std::string>{"a", "\xFF", "z"});
  CHECK(graphemes("\xE4\xB8") == std::vector<std::string>{"\xE4\xB8"});
  CHECK(previous_grapheme("a\xFFz", 2) == 1);
}

TEST_CASE("widths are those of a terminal", "[cpu][chat]") {
  CHECK(display_width("abc") == 3);
  CHECK(display_width("中文") == 4);
  CHECK(display_width(kMarked) == 1);
  CHECK(display_width(kFamily) == 2);
  CHECK(display_width("❤️") == 2);  // by its variation selector
  CHECK(display_width("\x01") == 1);
  CHECK(display_width("\xFF") == 1);
  CHECK(cut_to_width("中文", 3) == "中");
  CHECK(cut_to_width("中文", 1).empty());
  CHECK(cut_to_width("abc", 3) == "abc");
}

TEST_CASE("a step back costs the same however long the text is", "[cpu][chat]") {
  // A million marks on one letter, which no cluster may take whole.
  std::string text = "e";
  for (int i = 0; i < 500'000; ++i)
    text += "\xCC\x81";
  std::size_t at = text.size();
  for (int i = 0; i < 1000; ++i) {
    const std::size_t begin = previous_grapheme(text, at);
    REQUIRE(begin < at);
    at = begin;
  }
}
