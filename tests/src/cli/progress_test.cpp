#include "src/cli/progress.hpp"

#include <catch2/catch.hpp>

#include "src/text/terminal_text.hpp"

using namespace ingot;

namespace {

struct Screen {
  std::string written;
  double now = 0;

  Progress::Output output(bool terminal, int columns = 80) {
    return {[this](std::string_view bytes) { written += bytes; }, [this] { return now; }, terminal,
            [columns] { return columns; }};
  }
};

}  // namespace

TEST_CASE("on a terminal progress is one line that is written over and taken away", "[cpu][cli]") {
  Screen screen;
  {
    Progress progress(screen.output(true));
    CHECK(!progress.due());
    screen.now = 0.2;
    CHECK(progress.due());
    progress.show("one");
    CHECK(!progress.due());
    screen.now = 0.4;
    progress.show("two");
    CHECK(screen.written == "\rone\rtwo");
    screen.written.clear();
    progress.show("x");  // no escape sequence: a terminal need not know any
    CHECK(screen.written == "\rx  \b\b");
    progress.show("four");
    screen.written.clear();
  }
  CHECK(screen.written == "\r    \r");
}

TEST_CASE("progress lines are cut to the terminal, by characters", "[cpu][cli]") {
  Screen screen;
  Progress progress(screen.output(true, 4));
  progress.show("äöüß");
  CHECK(screen.written == "\räöü");
}

TEST_CASE("elsewhere progress is a plain line now and then", "[cpu][cli]") {
  Screen screen;
  {
    Progress progress(screen.output(false));
    screen.now = 9;
    CHECK(!progress.due());
    screen.now = 10;
    CHECK(progress.due());
    progress.show("half");
    CHECK(!progress.due());
  }
  CHECK(screen.written == "half\n");
}

TEST_CASE("text of a model cannot steer a terminal", "[cpu][cli]") {
  CHECK(for_terminal("plain\ttext\n终😀") == "plain\ttext\n终😀");
  CHECK(for_terminal("\x1b[2Jgone\r\x7f") == "␛[2Jgone␍␡");
  CHECK(for_terminal("\xC2\x9B"
                     "31m") ==
        "\xEF\xBF\xBD"
        "31m");
  CHECK(for_terminal("é") == "é");
}
