#include "src/chat/answer_view.hpp"

#include <catch2/catch.hpp>

#include "src/chat/markdown_style.hpp"
#include "src/chat/transcript.hpp"
#include "src/chat/turn_report.hpp"
#include "src/text/chat_encoding.hpp"
#include "src/text/json_value.hpp"
#include "tests/support/screen.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

std::string without_colour(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      out += text[i];
      continue;
    }
    while (text[i] != 'm')
      ++i;
  }
  return out;
}

std::string styled(std::string_view text, std::size_t piece) {
  MarkdownStyle style;
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += piece)
    out += style.push(text.substr(at, piece));
  return out + style.finish();
}

OutputDelta reasoning(std::string text) {
  return {std::move(text), {}, {}};
}
OutputDelta content(std::string text) {
  return {{}, std::move(text), {}};
}

struct Shown {
  explicit Shown(AnswerStyle style) : view(style, [this](std::string_view text) { out += text; }) {}
  std::string on_screen() const {
    Screen screen(60, 20);
    std::string cooked;  // as the terminal's driver makes line ends
    for (const char c : out)
      cooked += c == '\n' ? std::string("\r\n") : std::string(1, c);
    screen.feed(cooked);
    return screen.text();
  }
  std::string out;
  AnswerView view;
};

constexpr AnswerStyle kColour{true, true, false};
constexpr AnswerStyle kFolded{true, true, true};
constexpr AnswerStyle kMonochrome{true, false, false};
constexpr AnswerStyle kPipe{false, false, false};

}  // namespace

TEST_CASE("colouring changes no text, however it is cut", "[cpu][chat]") {
  const std::string_view text =
      "Look:\n```cpp\nint a;\n\n  ``` not an end\n````\n```\nmore `x` ``` text\n"
      "   ~~~\n``` inside\n~~~~ \n    ``` too far in\n``\n```a`b\nstill text\n```\nopen 中";
  const std::string whole = styled(text, text.size());
  CHECK(without_colour(whole) == text);
  for (std::size_t piece = 1; piece < 20; ++piece)
    CHECK(styled(text, piece) == whole);
}

TEST_CASE("the code of a fence has a colour, the text around it none", "[cpu][chat]") {
  CHECK(styled("a\n```py\nx = 1\n```\nb\n", 3) ==
        "a\n\x1b[2m```py\x1b[0m\n\x1b[36mx = 1\x1b[0m\n\x1b[2m```\x1b[0m\nb\n");
  // A shorter run, another mark and a run with text behind it do not close it.
  CHECK(styled("````\n```\n~~~~\n```` x\n````\nb", 1).find("\x1b[0m\nb") != std::string::npos);
  CHECK(styled("```a`b\ntext", 1).ends_with("\ntext"));
  // What is open at the end leaves no colour behind.
  CHECK(styled("```\nx", 1).ends_with("x\x1b[0m"));
  CHECK(styled("``", 1) == "``");
}

TEST_CASE("colouring holds back no more than may become a fence", "[cpu][chat]") {
  MarkdownStyle style;
  CHECK(style.push("a") == "a");
  CHECK(style.push("\n  ``") == "\n");
  CHECK(style.push("x") == "  ``x");
}

TEST_CASE("thinking is dim on a terminal, marked without colour, and absent in a pipe",
          "[cpu][chat]") {
  const auto out = [](AnswerStyle style) {
    Shown shown(style);
    shown.view.show(reasoning("hm\x1b"));
    shown.view.show(content("yes"));
    shown.view.end();
    return shown.out;
  };
  CHECK(out(kColour) == "\x1b[2mhm␛\n\x1b[0myes\n");
  CHECK(out(kMonochrome) == "<think>\nhm␛\n</think>\nyes\n");
  CHECK(out(kPipe) == "yes\n");
  CHECK(out({true, false, true}) == "(thought for 3 characters)\nyes\n");
}

TEST_CASE("folded thinking is one line, and unfolds to all of it", "[cpu][chat]") {
  Shown shown(kFolded);
  shown.view.show(reasoning("o"));
  CHECK(shown.on_screen() == "thinking, 1 character\n");
  shown.view.show(reasoning("ne\n"));
  shown.view.show(reasoning("two"));
  CHECK(shown.on_screen() == "thinking, 7 characters\n");
  shown.view.set_fold(false);
  CHECK(shown.on_screen() == "one\ntwo\n");
  shown.view.show(reasoning(" three"));
  shown.view.set_fold(true);
  shown.view.show(content("yes"));
  shown.view.end();
  CHECK(shown.on_screen() == "one\ntwo three\n(thought for 13 characters; Ctrl-T shows it)\nyes\n");
  CHECK(shown.view.thought() == "one\ntwo three");
}

TEST_CASE("an answer without a word is an empty line", "[cpu][chat]") {
  Shown shown(kColour);
  shown.view.end();
  CHECK(shown.out == "\n");
}

TEST_CASE("calls are blocks on a terminal and lines in a pipe", "[cpu][chat]") {
  const OutputDelta call{{}, {}, {{"", "weather", R"({"city": "Köln", "days": [1, 2]})"}}};
  Shown terminal(kMonochrome);
  terminal.view.show(content("Let me see."));
  terminal.view.show(call);
  terminal.view.end();
  CHECK(terminal.out == "Let me see.\n[call weather]\n  city: \"Köln\"\n  days: [1, 2]\n");
  Shown pipe(kPipe);
  pipe.view.show(call);
  pipe.view.end();
  CHECK(pipe.out == "[tool call] weather {\"city\": \"Köln\", \"days\": [1, 2]}\n");
  CHECK(readable_call({"", "f", "not JSON"}) == "[call f]\n  not JSON\n");
}

TEST_CASE("the figures of an answer are a line and an object", "[cpu][chat]") {
  TurnStats stats;
  stats.prompt_tokens = 100;
  stats.reused_tokens = 90;
  stats.generated_tokens = 11;
  stats.thinking_tokens = 4;
  stats.answer_tokens = 6;
  stats.first_token_s = 0.5;
  stats.total_s = 2.5;
  stats.context_tokens = 111;
  stats.context_limit = 200;
  CHECK(turn_line(stats) ==
        "prompt 100, cached 90; thinking 4; answer 6 tokens; first token 0.500 s, 5.0 tokens/s; "
        "context 111 of 200");
  const auto json = value_or_throw(parse_json(turn_json(stats), "stats"));
  CHECK(json.find("prefilled_tokens")->text == "10");
  CHECK(json.find("tokens_per_s")->text == "5.0");
  CHECK(json.find("finish_reason")->text == "stop");
  stats.finish_reason = FinishReason::length;
  CHECK(turn_line(stats).ends_with("; cut at max_tokens"));
  stats.context_tokens = 200;
  CHECK(turn_line(stats).ends_with("; the context is full"));
  ChatMessage answer;
  answer.role = Role::assistant;
  answer.reasoning = "hm \"";
  answer.tool_calls = {{"call_1", "f", "{}"}};
  const auto object = value_or_throw(parse_json(answer_json(answer, stats), "answer"));
  CHECK(object.find("reasoning_content")->text == "hm \"");
  CHECK(object.find("content")->kind == JsonValue::Kind::null);
  CHECK(object.find("stats")->find("context_limit")->text == "200");
}

TEST_CASE("an exported conversation can be read again", "[cpu][chat]") {
  const std::string_view json = R"([
    {"role": "system", "content": "s", "tools": [{"type": "function", "function": {"name": "f"}}],
     "response_format": {"type": "object"}},
    {"role": "user", "content": "a\n\"中\"", "task": "query"},
    {"role": "assistant", "content": "b", "reasoning_content": "c", "tool_calls":
      [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "content": "d", "tool_call_id": "call_1"},
    {"role": "assistant", "content": "e", "wo_eos": true}])";
  const auto messages = value_or_throw(parse_chat_messages(json, "test"));
  std::string lines = as_json_lines(messages);
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 5);
  lines.pop_back();
  for (char& c : lines)
    c = c == '\n' ? ',' : c;
  CHECK(value_or_throw(parse_chat_messages("[" + lines + "]", "export")) == messages);
}

TEST_CASE("Markdown of a conversation has fences that its text cannot close", "[cpu][chat]") {
  ChatMessage question;
  question.content = "what?";
  ChatMessage answer;
  answer.role = Role::assistant;
  answer.reasoning = "````\nhm";
  answer.content = "this.\n";
  CHECK(as_markdown(std::vector{question, answer}) ==
        "## User\n\nwhat?\n\n## Assistant\n\n<details><summary>Thinking</summary>\n\n"
        "`````\n````\nhm\n`````\n\n</details>\n\nthis.\n");
  CHECK(attachment("a.txt", "x```y") == "a.txt:\n\n````\nx```y\n````\n\n");
}
