#include "src/sampler/stop_matcher.hpp"

#include <catch2/catch.hpp>

using namespace ingot;

namespace {

struct Outcome {
  std::string text;
  int matched;
  bool operator==(const Outcome&) const = default;
};

Outcome feed(const std::vector<std::string>& stops, const std::vector<std::string>& chunks) {
  StopMatcher matcher(stops);
  std::string out;
  for (const std::string& chunk : chunks)
    out += matcher.push(chunk);
  out += matcher.flush();
  return {out, matcher.matched_index()};
}

}  // namespace

TEST_CASE("text without a stop string passes whole", "[cpu][sampler]") {
  CHECK(feed({}, {"abc", "def"}) == Outcome{"abcdef", -1});
  CHECK(feed({"xyz"}, {"abxy", "xdef", "xy"}) == Outcome{"abxyxdefxy", -1});
}

TEST_CASE("a stop string is never emitted, nor what follows it", "[cpu][sampler]") {
  CHECK(feed({"STOP"}, {"go on", " ST", "OP no"}) == Outcome{"go on ", 0});
  CHECK(feed({"\n\n"}, {"a\n", "\nb"}) == Outcome{"a", 0});
}

TEST_CASE("what may still become a stop string is held back, and no more", "[cpu][sampler]") {
  const std::vector<std::string> stops{"abac"};
  StopMatcher matcher(stops);
  CHECK(matcher.push("xab") == "x");
  CHECK(matcher.push("a") == "");
  CHECK(matcher.push("b") == "ab");  // "abab": the last two may begin anew
  CHECK(matcher.push("ac") == "");
  CHECK(matcher.matched());
  CHECK(matcher.push("more") == "");
  CHECK(matcher.flush() == "");
}

TEST_CASE("the match that ends first wins, the longest of those that end together",
          "[cpu][sampler]") {
  CHECK(feed({"bcd", "c"}, {"abcd"}) == Outcome{"ab", 1});
  CHECK(feed({"d", "bcd"}, {"abcd"}) == Outcome{"a", 1});
}

TEST_CASE("the output of the stop matcher does not depend on how the stream is cut",
          "[cpu][sampler]") {
  const std::vector<std::string> stops{"aab", "ba", "ｘ终", "end."};
  const std::string text = GENERATE(as<std::string>{}, "xaaab", "ｘ终", "noｘ end of ｘ en",
                                    "aaaaaabba", "the end.", "bbbb", "ｘｘ终");
  const Outcome whole = feed(stops, {text});
  for (std::size_t i = 0; i <= text.size(); ++i) {
    for (std::size_t j = i; j <= text.size(); ++j) {
      CHECK(feed(stops, {text.substr(0, i), text.substr(i, j - i), text.substr(j)}) == whole);
    }
  }
}
