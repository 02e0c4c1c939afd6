#include "src/chat/line_editor.hpp"

#include <catch2/catch.hpp>

using namespace ingot;

namespace {

using Outcome = LineEditor::Outcome;

struct Typist {
  explicit Typist(std::vector<std::string> past = {}) {
    for (const std::string& entry : past)
      value_or_throw(history.add(entry));
  }
  Outcome type(std::string_view text) { return editor.handle({Key::text, std::string(text)}); }
  Outcome paste(std::string_view text) { return editor.handle({Key::paste, std::string(text)}); }
  Outcome press(Key key) { return editor.handle({key, {}}); }
  /// Text before and after the cursor.
  std::string shown() const {
    std::string text = editor.text();
    text.insert(editor.cursor(), "|");
    return text;
  }

  InputHistory history;
  std::vector<std::string> words{"/retry", "/think", "/tokens", "/中a", "/中b", "/quit"};
  LineEditor editor{history, [this](std::string_view before) {
                      Completions found;
                      for (const std::string& word : words) {
                        if (word.starts_with(before)) found.candidates.push_back(word);
                      }
                      return found;
                    }};
};

}  // namespace

TEST_CASE("editing moves and deletes whole characters", "[cpu][chat]") {
  Typist t;
  t.type("a中👨‍👩‍👧b");
  t.press(Key::left);
  t.press(Key::backspace);
  CHECK(t.shown() == "a中|b");
  t.press(Key::left);
  t.press(Key::erase_at);
  CHECK(t.shown() == "a|b");
  t.press(Key::line_start);
  t.press(Key::backspace);  // nothing before
  CHECK(t.shown() == "|ab");
  t.press(Key::right);
  t.press(Key::right);
  t.press(Key::right);  // nothing behind
  CHECK(t.shown() == "ab|");
}

TEST_CASE("words and lines are killed and yanked", "[cpu][chat]") {
  Typist t;
  t.type("one two_2 drei.vier");
  t.press(Key::word_left);
  CHECK(t.shown() == "one two_2 drei.|vier");
  t.press(Key::kill_word_before);
  CHECK(t.shown() == "one two_2 |vier");
  t.press(Key::line_start);
  t.press(Key::yank);
  CHECK(t.shown() == "drei.|one two_2 vier");
  t.press(Key::kill_to_line_end);
  t.press(Key::kill_to_line_start);
  CHECK(t.shown() == "|");
  t.press(Key::yank);
  CHECK(t.shown() == "drei.|");
  t.press(Key::kill_word_after);  // nothing behind: what was killed stays
  t.press(Key::yank);
  CHECK(t.shown() == "drei.drei.|");
}

TEST_CASE("up and down move in a message of several lines, then in the history", "[cpu][chat]") {
  Typist t({"old"});
  t.type("long line");
  t.press(Key::newline);
  t.type("中文");
  t.press(Key::up);
  CHECK(t.shown() == "long| line\n中文");  // by columns
  t.press(Key::down);
  CHECK(t.shown() == "long line\n中文|");
  t.press(Key::up);
  t.press(Key::up);
  CHECK(t.shown() == "old|");
  t.press(Key::down);
  CHECK(t.shown() == "long line\n中文|");  // the draft is back
}

TEST_CASE("the history goes back, and on to what was being typed", "[cpu][chat]") {
  Typist t({"one", "two", "two", "three"});
  t.type("now");
  for (const char* entry : {"three|", "two|", "one|", "one|"}) {
    t.press(Key::previous_entry);
    CHECK(t.shown() == entry);
  }
  t.press(Key::next_entry);
  CHECK(t.shown() == "two|");
  t.press(Key::next_entry);
  t.press(Key::next_entry);
  CHECK(t.shown() == "now|");
  CHECK(t.press(Key::next_entry) == Outcome::nothing);
}

TEST_CASE("the history is searched backwards", "[cpu][chat]") {
  Typist t({"make all", "make test", "ls"});
  t.type("draft");
  t.press(Key::search);
  t.type("ma");
  CHECK(t.shown() == "|make test");
  CHECK(t.editor.hint() == "search: ma");
  t.press(Key::search);
  CHECK(t.shown() == "|make all");
  t.press(Key::search);
  CHECK(t.editor.hint().find("nothing older") != std::string::npos);
  t.press(Key::escape);
  CHECK(t.shown() == "draft|");
  CHECK(t.editor.hint().empty());
  t.press(Key::search);
  t.type("test");
  CHECK(t.press(Key::enter) == Outcome::submit);
  CHECK(t.editor.take().text == "make test");
}

TEST_CASE("a Tab completes commands and is a Tab elsewhere", "[cpu][chat]") {
  Typist t;
  t.type("/q");
  t.press(Key::tab);
  CHECK(t.shown() == "/quit |");
  t.editor.clear();
  t.type("/t");
  t.press(Key::tab);
  CHECK(t.editor.hint() == "/think  /tokens");
  t.type("h");
  CHECK(t.editor.hint().empty());
  t.press(Key::tab);
  CHECK(t.shown() == "/think |");
  t.editor.clear();
  t.type("/\xE4\xB8\xAD");
  t.press(Key::tab);  // 中a and 中b share no more
  CHECK(t.shown() == "/中|");
  t.editor.clear();
  t.type("x");
  t.press(Key::tab);
  CHECK(t.shown() == "x\t|");
}

TEST_CASE("a backslash at the end of a line goes on", "[cpu][chat]") {
  Typist t;
  t.type("one\\");
  CHECK(t.press(Key::enter) == Outcome::changed);
  CHECK(t.shown() == "one\n|");
  t.type("two\\\\");  // two of them are text
  CHECK(t.press(Key::enter) == Outcome::submit);
  CHECK(t.editor.take() == TypedMessage{"one\ntwo\\\\", true});
}

TEST_CASE("three quotes hold a message of several lines together", "[cpu][chat]") {
  Typist t;
  t.type("\"\"\"");
  CHECK(t.press(Key::enter) == Outcome::changed);
  t.type("/help \\");
  CHECK(t.press(Key::enter) == Outcome::changed);
  t.type("\"\"\"");
  CHECK(t.press(Key::enter) == Outcome::submit);
  CHECK(t.editor.take() == TypedMessage{"/help \\", true});
  t.type("\"\"\"one\"\"\"");
  CHECK(t.press(Key::enter) == Outcome::submit);
  CHECK(t.editor.take() == TypedMessage{"one", true});
}

TEST_CASE("marks in a paste mean themselves", "[cpu][chat]") {
  Typist t;
  t.paste("\"\"\"doc\nC:\\");
  CHECK(t.press(Key::enter) == Outcome::submit);
  CHECK(t.editor.take() == TypedMessage{"\"\"\"doc\nC:\\", true});
  // A block that was typed is closed by what is typed.
  t.type("\"\"\"");
  t.press(Key::enter);
  t.paste("def f():\n  \"\"\"doc\"\"\"");
  CHECK(t.press(Key::enter) == Outcome::changed);
  t.type("\"\"\"");
  CHECK(t.press(Key::enter) == Outcome::submit);
  CHECK(t.editor.take().text == "def f():\n  \"\"\"doc\"\"\"");
  // What is typed behind a paste counts again.
  t.paste("C:\\");
  t.type("\\\\");
  CHECK(t.press(Key::enter) == Outcome::changed);
  t.editor.clear();
  // And what comes back from the history is handed over as it was.
  value_or_throw(t.history.add("\"\"\"torn\\"));
  t.press(Key::previous_entry);
  CHECK(t.press(Key::enter) == Outcome::submit);
  CHECK(t.editor.take().text == "\"\"\"torn\\");
}

TEST_CASE("lines of a pipe are put together by the same rules", "[cpu][chat]") {
  LineJoiner joiner;
  CHECK(joiner.push("plain") == TypedMessage{"plain", false});
  CHECK(!joiner.push("one\\"));
  CHECK(!joiner.empty());
  CHECK(joiner.push("two") == TypedMessage{"one\ntwo", true});
  CHECK(joiner.empty());
  CHECK(!joiner.push("\"\"\""));
  CHECK(!joiner.push("/quit\\"));
  CHECK(!joiner.push(""));
  CHECK(joiner.push("\"\"\"") == TypedMessage{"/quit\\\n", true});
  CHECK(!joiner.push("\"\"\"open"));
  CHECK(joiner.finish() == TypedMessage{"open", true});
  CHECK(!joiner.finish());
  CHECK(joiner.push("\"\"\"\"\"\"") == TypedMessage{"", true});
  CHECK(!joiner.push("\"\"\"\""));  // four quotes: open, and one of them inside
}
