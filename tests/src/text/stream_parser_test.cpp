#include "src/text/stream_parser.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <nlohmann/json.hpp>

#include "src/text/chat_encoding.hpp"
#include "src/text/utf8.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

/// What a whole output came to.
struct Parsed {
  std::string reasoning, content;
  std::vector<ToolCall> calls;
  std::string error;

  bool operator==(const Parsed&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Parsed& parsed) {
  out << "reasoning [" << parsed.reasoning << "] content [" << parsed.content << "]";
  for (const ToolCall& call : parsed.calls)
    out << " call " << call.name << call.arguments;
  return out << " error [" << parsed.error << "]";
}

/// Feeds the pieces between the cuts; each delta must be UTF-8 where the whole text is.
Parsed parse(std::string_view text, bool thinking, const std::vector<std::size_t>& cuts = {}) {
  StreamParser parser(thinking);
  Parsed parsed;
  bool all_utf8 = true;
  const auto take = [&](const OutputDelta& delta) {
    parsed.reasoning += delta.reasoning;
    parsed.content += delta.content;
    parsed.calls.insert(parsed.calls.end(), delta.tool_calls.begin(), delta.tool_calls.end());
    all_utf8 = all_utf8 && is_utf8(delta.reasoning) && is_utf8(delta.content);
  };
  std::size_t at = 0;
  for (const std::size_t cut : cuts) {
    take(parser.push(text.substr(at, cut - at)));
    at = cut;
  }
  take(parser.push(text.substr(at)));
  take(parser.finish());
  parsed.error = parser.error();
  if (!all_utf8) parsed.error += " (a delta is not UTF-8)";
  return parsed;
}

Parsed parse_bytewise(std::string_view text, bool thinking) {
  std::vector<std::size_t> cuts;
  for (std::size_t i = 1; i < text.size(); ++i)
    cuts.push_back(i);
  return parse(text, thinking, cuts);
}

/// What the assistant says in the official encoder's tests: each text between the end of the
/// prompt's last token and the EOS token.
std::vector<std::pair<std::string, bool>> golden_outputs() {
  std::vector<std::pair<std::string, bool>> outputs;
  const std::string_view eos = "<｜end▁of▁sentence｜>";
  const std::string_view assistant = "<｜Assistant｜>";
  for (const char* number : {"1", "2", "3", "4"}) {
    const std::string golden = test::read_file(test::golden_dir() / "text/encoding-tests" /
                                               fmt::format("test_output_{}.txt", number));
    for (std::size_t at = 0; (at = golden.find(assistant, at)) != std::string::npos;) {
      at += assistant.size();
      const bool thinking = golden.compare(at, 7, "<think>") == 0;
      const std::size_t begin = at + (thinking ? 7 : 8);
      outputs.emplace_back(golden.substr(begin, golden.find(eos, begin) - begin), thinking);
    }
  }
  return outputs;
}

const std::string kCall =
    "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n"
    "<｜DSML｜parameter name=\"s\" string=\"true\">a\"b\n<｜DSML｜invoke</｜DSML｜parameter>\n"
    "<｜DSML｜parameter name=\"n\" string=\"false\">[1, {\"k\": null}]</｜DSML｜parameter>\n"
    "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"none\">\n\n</｜DSML｜invoke>\n"
    "</｜DSML｜tool_calls>";

}  // namespace

TEST_CASE("thinking, answer and tool calls of the golden outputs are told apart", "[cpu][text]") {
  const auto outputs = golden_outputs();
  REQUIRE(outputs.size() == 8);
  const Parsed first = parse(outputs[0].first, outputs[0].second);
  CHECK(first ==
        Parsed{"The user wants to know the weather in Beijing. I should use the get_weather tool.",
               "",
               {{"", "get_weather", R"({"location": "Beijing", "unit": "celsius"})"}},
               ""});
  for (const auto& [text, thinking] : outputs) {
    const Parsed parsed = parse(text, thinking);
    CAPTURE(text, parsed);
    CHECK(parsed.error.empty());
    CHECK(parsed.reasoning.empty() == !thinking);
    CHECK((parsed.content.empty() != parsed.calls.empty() || parsed.calls.empty()));
  }
}

TEST_CASE("published parses of whole outputs come out", "[cpu][text]") {
  const auto vectors = nlohmann::json::parse(
      test::read_file(test::golden_dir() / "text/encoding-tests/extra_vectors.json"));
  for (const auto& vector : vectors["parse"]) {
    std::string text = vector["text"];
    text.resize(text.find("<｜end▁of▁sentence｜>"));  // the stop token's text is not streamed
    const Parsed parsed = parse(text, vector["mode"] == "thinking");
    CHECK(parsed.content == vector["message"]["content"]);
    CHECK(parsed.reasoning == vector["message"]["reasoning_content"]);
    CHECK(parsed.calls.empty());
  }
}

TEST_CASE("deltas join to the same text for every way of cutting the goldens", "[cpu][text]") {
  auto outputs = golden_outputs();
  outputs.emplace_back("wh\xFF\xF0\x9F\x98y</thi</think></think>an\n\n\nsw\n\n<｜DSMer" + kCall,
                       true);
  outputs.emplace_back(kCall + "\n \n", false);
  for (const auto& [text, thinking] : outputs) {
    const Parsed whole = parse(text, thinking);
    CAPTURE(text, whole);
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
      if (const Parsed parsed = parse(text, thinking, {cut}); !(parsed == whole)) {
        CAPTURE(cut);
        CHECK(parsed == whole);
      }
    }
    CHECK(parse_bytewise(text, thinking) == whole);
  }
}

TEST_CASE("deltas join to the same text for every two cuts", "[cpu][text]") {
  const auto [text, thinking] = GENERATE(table<std::string, bool>({
      {"r\n</think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter "
       "name=\"p\" "
       "string=\"true\">é</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
       true},
      {"a\n\n\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n\n</｜DSML｜invoke>\n"
       "<｜DSML｜invoke name=\"g\">\n\n</｜DSML｜inv",
       false},
      {"\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n\n</｜DSML｜invoke>\n"
       "</｜DSML｜tool_calls>\n tail",
       false},
  }));
  const Parsed whole = parse(text, thinking);
  CAPTURE(text, whole);
  int different = 0;
  for (std::size_t first = 0; first <= text.size(); ++first) {
    for (std::size_t second = first; second <= text.size(); ++second) {
      different += parse(text, thinking, {first, second}) == whole ? 0 : 1;
    }
  }
  CHECK(different == 0);
}

TEST_CASE("no more is held back than may still become a marker or a character", "[cpu][text]") {
  StreamParser parser(true);
  CHECK(parser.push("why <").reasoning == "why ");
  CHECK(parser.push("b").reasoning == "<b");
  CHECK(parser.push("</think").empty());
  CHECK(parser.is_thinking());
  CHECK(parser.push(">").empty());
  CHECK(!parser.is_thinking());
  CHECK(parser.push("a\n").content == "a");
  CHECK(parser.push("b\n\n<").content == "\nb");
  CHECK(parser.push("｜DSML").empty());
  CHECK(parser.push("!\xF0\x9F").content == "\n\n<｜DSML!");
  CHECK(parser.push("\x98\x80").content == "😀");
  CHECK(parser.push("\n\n<｜DSML｜tool_calls").empty());
  CHECK(parser.in_tool_calls());
  CHECK(parser.push(">\n<｜DSML｜invoke name=\"f\">\n\n</｜DSML｜invoke>").tool_calls.size() == 1);
  CHECK(parser.push("\n</｜DSML｜tool_calls>").empty());
  CHECK(!parser.in_tool_calls());
  CHECK(parser.finish().empty());
  CHECK(parser.error().empty());
}

TEST_CASE("markers inside a string parameter are text, and arguments are JSON", "[cpu][text]") {
  const Parsed parsed = parse("ok" + kCall, false);
  CHECK(parsed.content == "ok");
  CHECK(parsed.error.empty());
  REQUIRE(parsed.calls.size() == 2);
  CHECK(parsed.calls[0].arguments == R"({"s": "a\"b\n<｜DSML｜invoke", "n": [1, {"k": null}]})");
  CHECK(nlohmann::json::accept(parsed.calls[0].arguments));
  CHECK(parsed.calls[1] == ToolCall{"", "none", "{}"});
}

TEST_CASE("rendered tool calls are parsed back to themselves", "[cpu][text]") {
  std::vector<ChatMessage> messages(2);
  messages[0].content = "q";
  messages[1].role = Role::assistant;
  messages[1].content = "text\n";
  messages[1].reasoning = "</thin";
  messages[1].tool_calls = {
      {"", "f",
       R"({"a": "", "b\"c": "x\ny", "": 1.5, "é": {"z": [true, null]}, "<": "</｜DSML｜invoke>"})"},
      {"", "g\">\"", "{}"},
      {"", "", R"({"s": " ", "t": "\n\n"})"}};
  ChatEncodingOptions options;
  options.thinking = Thinking::high;
  const std::string prompt = value_or_throw(render_chat(messages, options)).text();
  const std::size_t begin = prompt.find("<think>") + 7;
  const std::string output = prompt.substr(begin, prompt.rfind("<｜end▁of▁sentence｜>") - begin);
  CHECK(parse_bytewise(output, true) ==
        Parsed{messages[1].reasoning, messages[1].content, messages[1].tool_calls, ""});
}

TEST_CASE("a call that is cut off or malformed is handed on as content, verbatim", "[cpu][text]") {
  const std::string open = "\n\n<｜DSML｜tool_calls>\n";
  const std::string good = "<｜DSML｜invoke name=\"f\">\n\n</｜DSML｜invoke>";
  const auto [bad, why] = GENERATE(table<std::string, std::string>({
      {"<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"p\" string=\"true\">va", "ended"},
      {"<｜DSML｜invoke name=\"f", "ended"},
      {"<｜DSML｜inv", "ended"},
      {"hello", "neither a call"},
      {"<｜DSML｜invoke nam=\"f\">\n\n</｜DSML｜invoke>", "has no name"},
      {"<｜DSML｜invoke>\n\n</｜DSML｜invoke>", "has no name"},
      {"<｜DSML｜invoke name=\"f\">\nx</｜DSML｜invoke>", "has no name"},
      {"<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"p\">v</｜DSML｜parameter>\n"
       "</｜DSML｜invoke>",
       "has no name and string="},
      {"<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"p\" string=\"maybe\">v"
       "</｜DSML｜parameter>\n</｜DSML｜invoke>",
       "has no name and string="},
      {"<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"p\" string=\"true\">v"
       "</｜DSML｜parameter>\nx</｜DSML｜invoke>",
       "neither a parameter"},
      {"<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"p\" string=\"true\">1"
       "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"p\" string=\"true\">2</｜DSML｜parameter>\n"
       "</｜DSML｜invoke>",
       "two parameters"},
  }));
  CAPTURE(bad);
  const std::string after = "\n</｜DSML｜tool_calls> and more";
  for (const std::string& tail : {std::string(), why == "ended" ? std::string() : after}) {
    const Parsed first = parse_bytewise("a" + open + bad + tail, false);
    CHECK(first.content == "a" + open + bad + tail);
    CHECK(first.calls.empty());
    CHECK_THAT(first.error, Catch::Contains(why));

    const Parsed second = parse_bytewise("a" + open + good + "\n" + bad + tail, false);
    CHECK(second.content == "a\n" + bad + tail);
    CHECK(second.calls.size() == 1);
    CHECK_THAT(second.error, Catch::Contains(why));
  }
}

TEST_CASE("text after the block of tool calls is content, and said to be too much", "[cpu][text]") {
  const Parsed spaces = parse_bytewise(kCall + "\n \n", false);
  CHECK(spaces.content.empty());
  CHECK(spaces.error.empty());
  const Parsed text = parse_bytewise(kCall + "\n bye", false);
  CHECK(text.content == "\n bye");
  CHECK(text.calls.size() == 2);
  CHECK_THAT(text.error, Catch::Contains("follows"));
}

TEST_CASE("complete calls stand where the end of their block is cut off", "[cpu][text]") {
  const std::string block = kCall.substr(0, kCall.rfind("</｜DSML｜tool_calls>"));
  const std::string end = GENERATE("", "<", "</｜DSM", "</｜DSML｜tool_calls");
  CAPTURE(end);
  const Parsed parsed = parse_bytewise(block + end, false);
  CHECK(parsed.content.empty());
  CHECK(parsed.calls.size() == 2);
  CHECK_THAT(parsed.error, Catch::Contains("ended before"));
}

TEST_CASE("a block begins after two newlines or at the start of the answer", "[cpu][text]") {
  const std::string block = kCall.substr(2);
  CHECK(parse_bytewise(block, false).calls.size() == 2);
  CHECK(parse_bytewise("\n" + block, false).calls.size() == 2);
  CHECK(parse_bytewise("r</think>" + block, true).calls.size() == 2);
  CHECK(parse_bytewise("\n\n\n" + block, false).content == "\n");
  CHECK(parse_bytewise("see " + block, false).content == "see " + block);
  CHECK(parse_bytewise("\n\n<｜DSML｜tool_", false).content == "\n\n<｜DSML｜tool_");
  // Only </think> ends thinking: a model may think about the syntax.
  CHECK(parse_bytewise("x" + kCall, true).reasoning == "x" + kCall);
}

TEST_CASE("a 1 MiB parameter fed byte by byte takes linear time", "[cpu][text]") {
  const auto seconds = [](std::size_t bytes) {
    std::string text =
        "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n"
        "<｜DSML｜parameter name=\"p\" string=\"true\">";
    while (text.size() < bytes)
      text += "</｜DSML｜param <\n\n";
    text += "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
    const auto begin = std::chrono::steady_clock::now();
    StreamParser parser(false);
    std::size_t calls = 0;
    for (const char byte : text)
      calls += parser.push(std::string_view(&byte, 1)).tool_calls.size();
    REQUIRE(calls == 1);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  CHECK(seconds(1 << 20) < 5.0);  // quadratic would be hours
}

TEST_CASE("a block of very many calls in one piece takes linear time", "[cpu][text]") {
  std::string text = "\n\n<｜DSML｜tool_calls>\n";
  for (int i = 0; i < 20'000; ++i) {
    text += "<｜DSML｜invoke name=\"f\">\n\n</｜DSML｜invoke>\n";
  }
  const Parsed parsed = parse(text + "</｜DSML｜tool_calls>", false);
  CHECK(parsed.calls.size() == 20'000);
  CHECK(parsed.error.empty());
}
