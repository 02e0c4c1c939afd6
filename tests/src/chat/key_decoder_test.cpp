#include "src/chat/key_decoder.hpp"

#include <catch2/catch.hpp>
#include <vector>

using namespace ingot;

namespace {

struct Pressed {
  Key key;
  std::string text;
  bool operator==(const Pressed&) const = default;
};

/// All events of bytes that come in pieces of one size; neighbouring texts are joined.
std::vector<Pressed> decode(std::string_view bytes, std::size_t piece) {
  KeyDecoder decoder;
  std::vector<Pressed> out;
  const auto take = [&](std::optional<KeyEvent> event) {
    if (!event) return false;
    if (event->key == Key::text && !out.empty() && out.back().key == Key::text) {
      out.back().text += event->text;
    } else {
      out.push_back({event->key, event->text});
    }
    return true;
  };
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    decoder.push(bytes.substr(at, piece));
    while (take(decoder.next())) {
    }
  }
  while (take(decoder.next(true))) {
  }
  return out;
}

}  // namespace

TEST_CASE("keys do not depend on how their bytes are cut", "[cpu][chat]") {
  const std::string bytes =
      "a中😀\x1b[A\x1bOB\x1b[1;5C\x1b[3~\x01\x7f\x1b\r\r\x18\x05\x1b[200~x\ty\r\nz\r\xE4\xB8"
      "\xAD\x03\x1b[201~q\x1b";
  const std::vector<Pressed> expected{{Key::text, "a中😀"},
                                      {Key::up, ""},
                                      {Key::down, ""},
                                      {Key::word_right, ""},
                                      {Key::erase_at, ""},
                                      {Key::line_start, ""},
                                      {Key::backspace, ""},
                                      {Key::newline, ""},
                                      {Key::enter, ""},
                                      {Key::external_editor, ""},
                                      {Key::paste, "x\ty\nz\n中\x03"},
                                      {Key::text, "q"},
                                      {Key::escape, ""}};
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    CAPTURE(piece);
    CHECK(decode(bytes, piece) == expected);
  }
}

TEST_CASE("an unknown sequence is one unknown key, not text", "[cpu][chat]") {
  CHECK(decode("\x1b[97;3;1~a", 1) == std::vector<Pressed>{{Key::unknown, ""}, {Key::text, "a"}});
  CHECK(decode("\x1b[\x01", 3).back() == Pressed{Key::line_start, ""});
}

TEST_CASE("a paste of 1 MiB is one event and takes linear time", "[cpu][chat]") {
  const std::string text(std::size_t{1} << 20, 'x');
  const auto events = decode("\x1b[200~" + text + "\x1b[201~", 997);
  REQUIRE(events.size() == 1);
  CHECK(events[0].text == text);
}

TEST_CASE("of a paste beyond 16 MiB the rest is dropped", "[cpu][chat]") {
  const auto events =
      decode("\x1b[200~" + std::string(kMostPasteBytes + 5, 'x') + "\x1b[201~q", 1 << 16);
  REQUIRE(events.size() == 2);
  CHECK(events[0].text.size() == kMostPasteBytes);
  CHECK(events[1].text == "q");
}

TEST_CASE("what is not UTF-8 comes through for who mends it", "[cpu][chat]") {
  CHECK(decode("a\xFF\xC3", 1) == std::vector<Pressed>{{Key::text, "a\xFF\xC3"}});
}
