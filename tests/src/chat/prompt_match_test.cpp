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

TEST_CASE("a control token that the model wrote matches the text that it reads as", "[cpu][chat]") {
  const auto typed = [](const std::string& text) { return small_tokenizer().encode(text); };
  const auto joined = [](std::vector<std::vector<TokenId>> parts) {
    std::vector<TokenId> all;
    for (const auto& part : parts)
      all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const std::string written = GENERATE("b<think>c", "<｜title｜>", "<｜Assistant｜>b", "b</think>",
                                       "<｜Assistant｜><think>b", "<think><think>");
  CAPTURE(written);
  const auto before = ids("<｜User｜>a<｜Assistant｜></think>");
  const auto after = ids("<｜end▁of▁sentence｜><｜User｜>c");
  const auto held = joined({before, ids(written)});
  const auto prompt = joined({before, typed(written), after});
  CHECK(match(held, prompt) == PromptMatch{held.size(), prompt.size() - after.size()});
  // The same where more follows in the sequence.
  const auto longer = joined({held, after});
  const auto next = joined({prompt, ids("<｜Assistant｜></think>")});
  CHECK(match(longer, next) == PromptMatch{longer.size(), prompt.size()});
  // Other text in its place parts them there.
  const auto other = joined({before, typed("other"), after});
  CHECK(match(held, other) == PromptMatch{before.size(), before.size()});
}

TEST_CASE("the end of thinking and a call match as the control tokens that they are",
          "[cpu][chat]") {
  const std::string call = "b\n\n<｜DSML｜tool_calls>";
  const auto held = ids("<｜User｜>a<｜Assistant｜><think>t<think>t</think>" + call);
  std::vector<TokenId> prompt = ids("<｜User｜>a<｜Assistant｜><think>");
  const auto thought = small_tokenizer().encode("t<think>t");
  prompt.insert(prompt.end(), thought.begin(), thought.end());
  const auto rest = ids("</think>" + call + "<｜end▁of▁sentence｜>");
  prompt.insert(prompt.end(), rest.begin(), rest.end());
  CHECK(match(held, prompt) == PromptMatch{held.size(), prompt.size() - 1});
}

TEST_CASE("what stands in a user's place matches no control token, whatever came before",
          "[cpu][chat]") {
  const auto held =
      ids("<｜User｜>a<｜Assistant｜></think>b<｜end▁of▁sentence｜><｜User｜><think>c");
  std::vector<TokenId> prompt =
      ids("<｜User｜>a<｜Assistant｜></think>b<｜end▁of▁sentence｜><｜User｜>");
  const std::size_t common = prompt.size();
  const auto typed = small_tokenizer().encode("<think>c");
  prompt.insert(prompt.end(), typed.begin(), typed.end());
  CHECK(match(held, prompt) == PromptMatch{common, common});
}
