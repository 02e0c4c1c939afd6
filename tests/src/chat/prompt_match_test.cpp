#include "src/chat/prompt_match.hpp"

#include <catch2/catch.hpp>

#include "tests/support/small_tokenizer.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

std::vector<TokenId> ids(const std::string& text) {
  return small_tokenizer().encode(text, AddedTokens::recognise);
}

PromptMatch match(const std::vector<TokenId>& held, const std::vector<TokenId>& prompt) {
  return match_prompt(small_tokenizer(), held, prompt);
}

}  // namespace

TEST_CASE("a prompt goes on from all that is held if it begins with it", "[cpu][chat]") {
  const auto held = ids("<｜User｜>a<｜Assistant｜></think>b");
  const auto prompt = ids("<｜User｜>a<｜Assistant｜></think>b<｜end▁of▁sentence｜><｜User｜>c");
  CHECK(match(held, prompt) == PromptMatch{5, 5});
}

TEST_CASE("ordinary text is compared by its bytes, not by how it was cut", "[cpu][chat]") {
  // The tokenizer makes one token of "the"; the model wrote three.
  std::vector<TokenId> held = ids("<｜User｜>a<｜Assistant｜></think>");
  for (const char* letter : {"t", "h", "e"})
    held.push_back(ids(letter).at(0));
  const auto prompt = ids("<｜User｜>a<｜Assistant｜></think>the<｜end▁of▁sentence｜><｜User｜>c");
  CHECK(match(held, prompt) == PromptMatch{7, 5});
}

TEST_CASE("where texts part, the match ends at the control token before", "[cpu][chat]") {
  const auto held = ids("<｜User｜>a<｜Assistant｜><think>long thought</think>b");
  const auto prompt = ids("<｜User｜>a<｜Assistant｜></think>b<｜end▁of▁sentence｜><｜User｜>c");
  CHECK(match(held, prompt) == PromptMatch{3, 3});
  CHECK(match(ids("<｜User｜>abc<｜Assistant｜>"), ids("<｜User｜>abd<｜Assistant｜></think>")) ==
        PromptMatch{1, 1});
}

TEST_CASE("text that spells a control token does not match the token", "[cpu][chat]") {
  const auto held = ids("<｜User｜>a<｜Assistant｜></think>b");
  auto prompt = ids("<｜User｜>");
  const auto typed = small_tokenizer().encode("a<｜Assistant｜></think>b");
  prompt.insert(prompt.end(), typed.begin(), typed.end());
  const auto end = ids("<｜Assistant｜></think>");
  prompt.insert(prompt.end(), end.begin(), end.end());
  CHECK(match(held, prompt) == PromptMatch{1, 1});
}

TEST_CASE("something of the prompt is always left to feed", "[cpu][chat]") {
  const auto prompt = ids("<｜User｜>a<｜Assistant｜></think>");
  CHECK(match(prompt, prompt) == PromptMatch{3, 3});
  auto longer = prompt;
  longer.push_back(ids("b").at(0));
  CHECK(match(longer, prompt) == PromptMatch{3, 3});
  CHECK(match({}, prompt) == PromptMatch{0, 0});
  CHECK(match(prompt, ids("<｜end▁of▁sentence｜>")) == PromptMatch{0, 0});
}
