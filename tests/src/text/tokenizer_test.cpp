#include "src/text/tokenizer.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/real_tokenizer.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using test::real_tokenizer;

TEST_CASE("the published token ids of short texts and golden prompts come out", "[cpu][text]") {
  const auto vectors =
      nlohmann::json::parse(test::read_file(test::golden_dir() / "text/tokenizer_vectors.json"));
  REQUIRE(vectors.size() == 15);
  for (const auto& vector : vectors) {
    const std::string text = vector.contains("text")
                                 ? vector["text"].get<std::string>()
                                 : test::read_file(test::golden_dir() / "text/encoding-tests" /
                                                   vector["file"].get<std::string>());
    CAPTURE(text);
    CHECK(real_tokenizer().encode(text, AddedTokens::recognise) ==
          vector["ids"].get<std::vector<TokenId>>());
  }
}

TEST_CASE("decoding gives back the bytes that were encoded", "[cpu][text]") {
  const std::string text =
      "<think>é café\r\n  naïve 😀👍🏽 \t1234567 深度求索</think>\xF0\x9F\xA9\xB7";
  for (const AddedTokens added : {AddedTokens::as_text, AddedTokens::recognise}) {
    CHECK(real_tokenizer().decode(real_tokenizer().encode(text, added)) == text);
  }
}

TEST_CASE("every id of the tokenizer is defined and the added ones are known", "[cpu][text]") {
  const Tokenizer& tokenizer = real_tokenizer();
  REQUIRE(tokenizer.size() == 129280);
  int added = 0;
  for (TokenId id = 0; id < tokenizer.size(); ++id) {
    REQUIRE(!tokenizer.bytes(id).empty());
    if (!tokenizer.is_added(id)) continue;
    ++added;
    REQUIRE(tokenizer.added_token(tokenizer.bytes(id)) == id);
  }
  CHECK(added == 1283);
  CHECK(tokenizer.added_token("<｜begin▁of▁sentence｜>") == 0);
  CHECK(tokenizer.added_token("</think>") == 128822);
  CHECK(tokenizer.added_token("hello") == std::nullopt);
  CHECK(tokenizer.bytes(-1).empty());
  CHECK(tokenizer.bytes(129280).empty());
}
