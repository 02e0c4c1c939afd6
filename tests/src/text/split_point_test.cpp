// Places where a text may be cut without other ids, and words that are too long to encode.
#include <catch2/catch.hpp>
#include <random>

#include "src/text/byte_pair.hpp"
#include "src/text/tokenizer.hpp"
#include "tests/support/made_tokenizer.hpp"
#include "tests/support/peak_memory.hpp"
#include "tests/support/real_tokenizer.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/text_corpus.hpp"

using namespace ingot;
using test::real_tokenizer;

namespace {

/// Pieces that patterns end at, go on over or look ahead to, and bytes that are no text.
const std::vector<std::string> kParts = {"a",
                                         "Zb",
                                         "don't",
                                         " ",
                                         "  ",
                                         "\t",
                                         "\n",
                                         "\r",
                                         "\r\n",
                                         "\f",
                                         "\v",
                                         "1",
                                         "23456",
                                         ".",
                                         "!?",
                                         "(",
                                         "_",
                                         "-",
                                         "$",
                                         "深",
                                         "度",
                                         "ー",
                                         "。",
                                         "é",
                                         "e\u0301",
                                         "\u0301",
                                         "\u00A0",
                                         "\u0085",
                                         "\u2028",
                                         "\u3000",
                                         "\u2003",
                                         "\u1680",
                                         "\u180E",
                                         "\u200B",
                                         "٣",
                                         "Ⅷ",
                                         "🩷",
                                         "→",
                                         "ª",
                                         "\u1B4C",
                                         std::string(1, '\0'),
                                         "\x01",
                                         "\x1F",
                                         "\x7F",
                                         "\xFF",
                                         "\xC3",
                                         "\xE6\xB7",
                                         "\xF0\x9F",
                                         "\x80",
                                         "<think>",
                                         "</think>",
                                         "<｜User｜>",
                                         "<",
                                         "｜",
                                         "think"};

std::string random_text(std::mt19937& random) {
  std::string text;
  // Now and then few kinds of pieces, so that long runs of one come about.
  const std::size_t kinds = random() % 2 == 0 ? kParts.size() : 1 + random() % 4;
  const std::size_t first = random() % kParts.size();
  for (std::size_t pieces = random() % 24; pieces > 0; --pieces)
    text += kParts[(first + random() % kinds) % kParts.size()];
  return text;
}

std::vector<TokenId> cut_in_two(std::string_view text, std::size_t at, AddedTokens added) {
  std::vector<TokenId> ids = real_tokenizer().encode(text.substr(0, at), added);
  real_tokenizer().encode(text.substr(at), added, ids);
  return ids;
}

}  // namespace

TEST_CASE("a text that is cut at a split point has the ids of the whole", "[cpu][text]") {
  const AddedTokens added = GENERATE(AddedTokens::as_text, AddedTokens::recognise);
  std::mt19937 random(3);
  int cuts = 0;
  for (int round = 0; round < 20'000; ++round) {
    const std::string text = random_text(random);
    const std::vector<TokenId> whole = real_tokenizer().encode(text, added);
    // What is seen of the text may end anywhere.
    const std::string_view seen = std::string_view(text).substr(0, random() % (text.size() + 1));
    const std::size_t at = real_tokenizer().split_point(seen, added);
    if (at == 0) continue;
    ++cuts;
    REQUIRE(at < seen.size());
    CAPTURE(text, at);
    REQUIRE(cut_in_two(text, at, added) == whole);
  }
  CHECK(cuts > (added == AddedTokens::as_text ? 3000 : 500));
}

TEST_CASE("every split point of the corpus is one", "[cpu][text]") {
  const std::string corpus = test::text_corpus();
  const std::string_view text = std::string_view(corpus).substr(0, 40'000);
  const AddedTokens added = GENERATE(AddedTokens::as_text, AddedTokens::recognise);
  std::vector<TokenId> ids;
  std::size_t end = text.size(), parts = 0;
  std::vector<std::string_view> backwards;
  for (std::size_t at = end; at > 0; end = at, ++parts) {
    at = real_tokenizer().split_point(text.substr(0, end), added);
    backwards.push_back(text.substr(at, end - at));
  }
  for (auto part = backwards.rbegin(); part != backwards.rend(); ++part)
    real_tokenizer().encode(*part, added, ids);
  CHECK(ids == real_tokenizer().encode(text, added));
  CHECK(parts > (added == AddedTokens::as_text ? 1500 : 100));
}

TEST_CASE("words, lines and control tokens are not cut", "[cpu][text]") {
  const auto at = [](std::string_view text, AddedTokens added = AddedTokens::as_text) {
    return real_tokenizer().split_point(text, added);
  };
  CHECK(at("") == 0);
  CHECK(at("a") == 0);
  CHECK(at("abc def") == 3);
  CHECK(at("abc") == 0);
  CHECK(at("one\n\ntwo") == 5);
  CHECK(at("。\n\n") == 0);  // what follows may be one more
  CHECK(at("。\n \u3000x") == 0);
  CHECK(at("caf\u00E9 au") == 0);  // letters beyond ASCII are not looked up
  CHECK(at("<think>", AddedTokens::recognise) == 0);
  CHECK(at("x <think>\ny", AddedTokens::recognise) == 10);
}

TEST_CASE("of patterns that are not DeepSeek-V4's no split point is known", "[cpu][text]") {
  auto json = test::made_tokenizer();
  json["added_tokens"].push_back({{"id", 1000}, {"content", "a\nb"}});
  const Tokenizer lines = value_or_throw(Tokenizer::parse(json.dump(), "made"));
  CHECK(lines.split_point("a b\nc", AddedTokens::as_text) ==
        real_tokenizer().split_point("a b\nc", AddedTokens::as_text));
  CHECK(lines.split_point("a b\nc", AddedTokens::recognise) == 0);
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\p{N}{1,2}";
  const Tokenizer other = value_or_throw(Tokenizer::parse(json.dump(), "made"));
  CHECK(other.split_point("a b\nc", AddedTokens::as_text) == 0);
}

TEST_CASE("a word of more than 16 MiB is refused before it takes memory", "[cpu][text]") {
  const std::string word(BytePairEncoder::kMaxPieceBytes + 1, 'a');
  std::vector<TokenId> ids;
  CHECK_THROWS_WITH(real_tokenizer().encode(word, AddedTokens::as_text, ids),
                    Catch::Contains("one word of 16777217 bytes") && Catch::Contains("split"));
  if (test::kSanitized) return;
  CHECK(test::peak_memory_of([&] {
          try {
            (void)real_tokenizer().encode(word);
          } catch (const EngineError&) {
          }
        }) < (std::size_t{4} << 20));
}
