#include "src/chat/line_view.hpp"

#include <catch2/catch.hpp>
#include <random>

#include "src/chat/text_width.hpp"
#include "tests/support/screen.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

constexpr std::string_view kPrompt = ">>> ";
constexpr std::string_view kContinuation = "... ";

struct Drawn {
  Drawn(int columns, int rows) : screen(columns, rows), view(columns, rows) {}
  void draw(std::string_view text, std::size_t cursor, std::string_view hint = {}) {
    screen.feed(view.draw({kPrompt, kContinuation, text, cursor, hint}));
  }
  Screen screen;
  LineView view;
};

}  // namespace

TEST_CASE("a message is wrapped at whole characters", "[cpu][chat]") {
  Drawn d(10, 8);
  const std::string text = "ab中文字d";  // the third wide one does not fit the rest of its row
  d.draw(text, text.size());
  CHECK(d.screen.text() == ">>> ab中文\n字d\n");
  CHECK(d.screen.row() == 1);
  CHECK(d.screen.column() == 3);
  d.draw(text, 2);
  CHECK(d.screen.row() == 0);
  CHECK(d.screen.column() == 6);
}

TEST_CASE("behind a full row the cursor is on the next one", "[cpu][chat]") {
  Drawn d(8, 4);
  d.draw("abcd", 4);
  CHECK(d.screen.text() == ">>> abcd\n");
  CHECK(d.screen.row() == 1);
  CHECK(d.screen.column() == 0);
  d.draw("abc", 3);
  CHECK(d.screen.text() == ">>> abc\n");
  CHECK(d.screen.row() == 0);
}

TEST_CASE("lines, tabs and control characters have their places", "[cpu][chat]") {
  Drawn d(20, 8);
  const std::string_view text = "a\tb\n\x1b[31m\n";
  d.draw(text, text.size());
  CHECK(d.screen.text() == ">>> a   b\n... ␛[31m\n...\n");
  CHECK(d.screen.row() == 2);
  CHECK(d.screen.column() == 4);
  d.draw(text, 2);
  CHECK(d.screen.column() == 8);
}

TEST_CASE("bytes that are not UTF-8 reach no terminal", "[cpu][chat]") {
  LineView view(20, 4);
  const std::string drawn = view.draw({kPrompt, kContinuation, "a\x9B\xFFz", 4, {}});
  CHECK(drawn.find("a\xEF\xBF\xBD\xEF\xBF\xBDz") != std::string::npos);
  CHECK(drawn.find('\xFF') == std::string::npos);
}

TEST_CASE("every draw shows what a first one would", "[cpu][chat]") {
  // Random edits of a text with all that is awkward, on a narrow terminal: after each, the screen
  // is what an empty one would show, and the cursor is where it would be.
  std::mt19937 random(7);
  const std::vector<std::string> pieces{
      "a", "bc ", "中", "👨‍👩‍👧", "\n", "\t", "e\xCC\x81", "\x01", "\xFF"};
  const int columns = GENERATE(2, 5, 9, 16);
  constexpr int kRows = 6;
  Drawn d(columns, kRows);
  std::vector<std::string> parts;
  for (int step = 0; step < 400; ++step) {
    if (random() % 3 == 0 && !parts.empty()) {
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(random() % parts.size()));
    } else {
      parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(random() % (parts.size() + 1)),
                   pieces[random() % pieces.size()]);
    }
    if (parts.size() > 14) parts.clear();
    const std::size_t before = random() % (parts.size() + 1);
    std::string text, head;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (i == before) head = text;
      text += parts[i];
    }
    if (before == parts.size()) head = text;
    // Two parts may have become one character.
    std::size_t cursor = 0;
    while (cursor < head.size())
      cursor = next_grapheme(text, cursor);
    if (random() % 8 == 0) d.screen.feed(d.view.erase());
    d.draw(text, cursor, step % 5 == 0 ? "hint" : "");
    Drawn fresh(columns, 1000);
    fresh.draw(text, cursor, step % 5 == 0 ? "hint" : "");
    const auto all = fresh.screen.lines();
    auto now = d.screen.lines();
    // On the screen are at most its rows, with the cursor's among them.
    CAPTURE(columns, step, text, cursor);
    if (fresh.screen.row() < kRows && all.size() <= kRows) {
      REQUIRE(now.size() >= all.size());
      REQUIRE(std::equal(all.rbegin(), all.rend(), now.rbegin()));
    }
    REQUIRE(d.screen.column() == fresh.screen.column());
  }
}

TEST_CASE("of a text higher than the terminal the rows around the cursor are shown",
          "[cpu][chat]") {
  Drawn d(10, 4);
  std::string text;
  for (int i = 0; i < 20; ++i)
    text += std::to_string(i) + (i < 19 ? "\n" : "");
  d.draw(text, text.size());
  CHECK(d.screen.lines().back() == "... 19");
  CHECK(d.screen.row() == 3);
  d.draw(text, 0);
  CHECK(d.screen.row() == 0);
  CHECK(d.screen.lines().back() == "... 3");
  d.draw(text, 2);
  CHECK(d.screen.row() == 1);
}

TEST_CASE("a resize is reckoned with", "[cpu][chat]") {
  Drawn d(20, 8);
  d.screen.feed("before\r\n");
  d.draw("a text of two rows here", 23);
  // Wider: the terminal of this test leaves its rows as they are.
  d.screen.resize(40, 8);
  d.view.resize(40, 8);
  d.draw("a text of two rows here", 23);
  CHECK(d.screen.text() == "before\n>>> a text of two rows here\n");
}

TEST_CASE("finishing leaves the cursor below, whatever is shown", "[cpu][chat]") {
  Drawn d(10, 8);
  d.draw("one\ntwo\nthree", 1);
  d.screen.feed(d.view.finish());
  CHECK(d.screen.row() == 3);
  CHECK(d.screen.column() == 0);
  d.draw("x", 1);
  CHECK(d.screen.text() == ">>> one\n... two\n... three\n>>> x\n");
}

TEST_CASE("a key costs the same after a paste of 1 MiB", "[cpu][chat]") {
  LineView view(80, 24);
  std::string text;
  while (text.size() < (std::size_t{1} << 20))
    text += "some words in a long line \n";
  for (std::size_t i = 0; i < 50; ++i) {
    const std::string drawn = view.draw({kPrompt, kContinuation, text, text.size() - i, {}});
    REQUIRE(drawn.size() < 80 * 24 * 2);
  }
}
