#include "src/batch/batch_request.hpp"

#include <fmt/core.h>

#include <catch2/catch.hpp>

using namespace ingot;

namespace {

BatchResult<BatchRequest> parse(std::string text, const BatchDefaults& defaults = {}) {
  return parse_batch_line({7, std::move(text), false}, defaults);
}

std::string with_body(std::string_view body) {
  return fmt::format(
      R"({{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {}}})", body);
}

/// A good body with more fields.
std::string with_fields(std::string_view fields) {
  return with_body(
      fmt::format(R"({{"messages": [{{"role": "user", "content": "hi"}}], {}}})", fields));
}

/// The line is refused, and the message says this.
void refused(const std::string& line, std::string_view word,
             std::string_view code = "invalid_request") {
  CAPTURE(line);
  const auto request = parse(line);
  REQUIRE(!request);
  CAPTURE(request.error().message);
  CHECK(request.error().line == 7);
  CHECK(request.error().code == code);
  CHECK(request.error().message.find(word) != std::string::npos);
  CHECK(request.error().message.find('\n') == std::string::npos);
}

}  // namespace

TEST_CASE("a batch line is understood with all its fields", "[cpu][batch]") {
  const auto request = parse(with_body(R"({
    "model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
    "temperature": 0.5, "top_p": 0.25, "top_k": 40, "min_p": 0.125, "seed": 42, "stop": ["x", "y"],
    "max_completion_tokens": 9, "logprobs": true, "top_logprobs": 3, "logit_bias": {"12": -100, "5": 1.5},
    "presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.25, "reasoning_effort": "high",
    "thinking_budget": 77, "stop_token_ids": [3, 4], "n": 1, "stream": false, "user": "me",
    "metadata": {"a": "b"}, "tool_choice": "auto", "response_format": {"type": "text"}})"));
  REQUIRE(request);
  CHECK(request->custom_id == "a");
  CHECK(request->line == 7);
  CHECK(request->model == "m");
  REQUIRE(request->messages.size() == 2);
  CHECK(request->messages[1].content == "u");
  CHECK(request->thinking == Thinking::high);
  const SamplingParams& sampling = request->sampling;
  CHECK(sampling.temperature == 0.5);
  CHECK(sampling.top_p == 0.25);
  CHECK(sampling.top_k == 40);
  CHECK(sampling.min_p == 0.125);
  CHECK(sampling.seed == 42);
  CHECK(sampling.stop == std::vector<std::string>{"x", "y"});
  CHECK(sampling.max_tokens == 9);
  CHECK(sampling.top_logprobs == 3);
  CHECK(sampling.logit_bias == std::vector<std::pair<TokenId, double>>{{12, -100.0}, {5, 1.5}});
  CHECK(sampling.presence_penalty == 1);
  CHECK(sampling.frequency_penalty == -1);
  CHECK(sampling.repetition_penalty == 1.25);
  CHECK(sampling.thinking_budget == 77);
  CHECK(sampling.stop_ids == std::vector<TokenId>{3, 4});
}

TEST_CASE("what a line leaves out or sets to null comes from the settings", "[cpu][batch]") {
  BatchDefaults defaults;
  defaults.sampling.temperature = 0.25;
  defaults.sampling.max_tokens = 5;
  defaults.sampling.stop = {"S"};
  defaults.thinking = Thinking::max;
  defaults.model = "folder";
  const auto request =
      parse(with_fields(R"("temperature": null, "stop": null, "max_tokens": null, "tools": null)"),
            defaults);
  REQUIRE(request);
  CHECK(request->sampling.temperature == 0.25);
  CHECK(request->sampling.max_tokens == 5);
  CHECK(request->sampling.stop == std::vector<std::string>{"S"});
  CHECK(request->thinking == Thinking::max);
  CHECK(request->model == "folder");
}

TEST_CASE("each line has a seed of its own, the same in every run", "[cpu][batch]") {
  const auto seed = [](std::string_view id, std::uint64_t base) {
    BatchDefaults defaults;
    defaults.seed = base;
    std::string line = with_fields(R"("top_k": 0)");
    line.replace(line.find("\"a\""), 3, fmt::format("\"{}\"", id));
    return parse(line, defaults).value().sampling.seed;
  };
  CHECK(seed("a", 0) == seed("a", 0));
  CHECK(seed("a", 0) != seed("b", 0));
  CHECK(seed("a", 0) != seed("a", 1));
}

TEST_CASE("the settings' system message goes before conversations without one", "[cpu][batch]") {
  BatchDefaults defaults;
  defaults.system = "be brief";
  auto request = parse(with_fields(R"("top_k": 0)"), defaults);
  REQUIRE(request);
  REQUIRE(request->messages.size() == 2);
  CHECK(request->messages[0].role == Role::system);
  CHECK(request->messages[0].content == "be brief");
  request = parse(with_body(R"({"messages": [{"role": "system", "content": "own"},
                                            {"role": "user", "content": "u"}]})"),
                  defaults);
  REQUIRE(request);
  CHECK(request->messages.size() == 2);
  CHECK(request->messages[0].content == "own");
  request =
      parse(with_fields(R"("tools": [{"type": "function", "function": {"name": "f"}}])"), defaults);
  REQUIRE(request);
  CHECK(request->messages[0].content == "be brief");
  CHECK(request->messages[0].tools.size() == 1);
  request = parse(with_fields(
      R"("tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none")"));
  REQUIRE(request);
  CHECK(request->messages[0].tools.empty());
}

TEST_CASE("a line has the efforts of the checkpoint's table, and no others", "[cpu][batch]") {
  BatchDefaults defaults;
  const auto effort = [&](std::string_view fields) {
    return parse(with_fields(fields), defaults).value().thinking;
  };
  CHECK(effort(R"("reasoning_effort": "none")") == Thinking::none);
  CHECK(effort(R"("reasoning_effort": "high")") == Thinking::high);
  CHECK(effort(R"("reasoning_effort": "max")") == Thinking::max);
  CHECK(effort(R"("thinking": {"type": "enabled"})") == Thinking::high);
  CHECK(effort(R"("thinking": {"type": "enabled"}, "reasoning_effort": "max")") == Thinking::max);
  CHECK(effort(R"("thinking": {"type": "disabled"}, "reasoning_effort": "max")") == Thinking::none);
  CHECK(effort(R"("thinking": {"type": "disabled"}, "reasoning_effort": "none")") ==
        Thinking::none);
  for (const Thinking usual : {Thinking::none, Thinking::max}) {
    defaults.thinking = usual;
    const auto both = parse(
        with_fields(R"("thinking": {"type": "enabled"}, "reasoning_effort": "none")"), defaults);
    REQUIRE(!both);
    CHECK(both.error().custom_id == "a");
    CHECK(both.error().message ==
          "body.reasoning_effort is \"none\" and body.thinking.type is \"enabled\": these "
          "contradict each other; leave out one of them");
  }
  defaults.thinking = Thinking::none;
  const auto refused_by_name = [&](const std::string& name, std::string_view known) {
    // Whatever the switch says: nothing takes the place of an effort that there is not.
    for (const char* more :
         {"", R"(, "thinking": {"type": "enabled"})", R"(, "thinking": {"type": "disabled"})"}) {
      const auto request =
          parse(with_fields("\"reasoning_effort\": \"" + name + "\"" + more), defaults);
      REQUIRE(!request);
      CHECK(request.error().custom_id == "a");
      CHECK(request.error().message ==
            "body.reasoning_effort: thinking effort \"" + name + "\": " + std::string(known));
    }
  };
  // As the API takes them for this checkpoint.
  CHECK(effort(R"("reasoning_effort": "low")") == Thinking::high);
  CHECK(effort(R"("reasoning_effort": "medium")") == Thinking::high);
  CHECK(effort(R"("reasoning_effort": "xhigh")") == Thinking::max);
  for (const char* name : {"minimal", "HIGH", ""})
    refused_by_name(name,
                    "for this checkpoint a request may say none, low, medium, high, xhigh and max");
  defaults.efforts = EffortTable::v0731;
  CHECK(effort(R"("reasoning_effort": "low")") == Thinking::low);
  for (const char* name : {"medium", "xhigh"})
    refused_by_name(name, "this checkpoint knows none, low, high and max");
}

TEST_CASE("a batch line of null is refused", "[cpu][batch]") {
  refused("null", "object");
}

TEST_CASE("a batch line that is an array is refused", "[cpu][batch]") {
  refused("[1,2]", "object");
}

TEST_CASE("a batch line that is a string is refused", "[cpu][batch]") {
  refused("\"x\"", "object");
}

TEST_CASE("a batch line that is not UTF-8 is refused", "[cpu][batch]") {
  refused(with_fields("\"user\": \"\xFF\xFE\""), "", "invalid_json");
}

TEST_CASE("a batch line with a NUL is refused", "[cpu][batch]") {
  refused(std::string("{\"custom_id\": \"a\", \0}", 22), "", "invalid_json");
  refused(std::string("\0", 1), "", "invalid_json");
}

TEST_CASE("a batch line that is cut off or followed by more is refused", "[cpu][batch]") {
  const std::string good = with_fields("\"seed\": 1");
  refused(good.substr(0, good.size() - 1), "", "invalid_json");
  refused(good + "{}", "", "invalid_json");
  refused("{", "", "invalid_json");
}

TEST_CASE("a batch line over 16 MiB is refused unparsed", "[cpu][batch]") {
  const auto request = parse_batch_line({3, "", true}, {});
  REQUIRE(!request);
  CHECK(request.error().code == "line_too_long");
  CHECK(request.error().message.find("16 MiB") != std::string::npos);
}

TEST_CASE("a batch line nested a million deep is refused", "[cpu][batch]") {
  refused(std::string(1 << 20, '['), "", "invalid_json");
  refused(with_fields("\"metadata\": " + std::string(100000, '[')), "", "invalid_json");
}

TEST_CASE("a batch line without a body is refused", "[cpu][batch]") {
  refused(R"({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions"})",
          "body is missing");
}

TEST_CASE("a batch line whose body is a string is refused", "[cpu][batch]") {
  refused(with_body("\"text\""), "body must be an object");
}

TEST_CASE("a batch line that wants a stream is refused", "[cpu][batch]") {
  refused(with_fields("\"stream\": true"), "stream");
}

TEST_CASE("a batch line for another url is refused", "[cpu][batch]") {
  refused(R"({"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {}})",
          "/v1/embeddings");
  refused(R"({"custom_id": "a", "body": {}})", "url is missing");
  refused(R"({"custom_id": "a", "method": "GET", "url": "/v1/chat/completions", "body": {}})",
          "GET");
}

TEST_CASE("a batch line without a usable custom_id is refused", "[cpu][batch]") {
  refused(R"({"url": "/v1/chat/completions", "body": {}})", "custom_id");
  refused(R"({"custom_id": 5, "url": "/v1/chat/completions", "body": {}})", "custom_id");
  refused(R"({"custom_id": "", "url": "/v1/chat/completions", "body": {}})", "custom_id");
}

TEST_CASE("the error of a batch line carries its custom_id as soon as that is known",
          "[cpu][batch]") {
  CHECK(parse(with_body("5")).error().custom_id == "a");
  CHECK(!parse("{}").error().custom_id);
}

TEST_CASE("sampling fields of the wrong type are refused by name", "[cpu][batch]") {
  refused(with_fields("\"temperature\": \"hot\""), "body.temperature");
  refused(with_fields("\"temperature\": NaN"), "", "invalid_json");
  refused(with_fields("\"max_tokens\": 1.5"), "body.max_tokens");
  refused(with_fields("\"max_tokens\": 1e18"), "body.max_tokens");
  refused(with_fields("\"max_tokens\": 99999999999999999999"), "body.max_tokens");
  refused(with_fields("\"max_tokens\": 5, \"max_completion_tokens\": 6"), "give one");
  refused(with_fields("\"stop\": 5"), "body.stop");
  refused(with_fields("\"stop\": [\"a\", 5]"), "body.stop");
  refused(with_fields("\"seed\": \"1\""), "body.seed");
  refused(with_fields("\"logit_bias\": {\"x\": 1}"), "body.logit_bias");
  refused(with_fields("\"logit_bias\": {\"1\": \"x\"}"), "body.logit_bias");
  refused(with_fields("\"logit_bias\": [1]"), "body.logit_bias");
  refused(with_fields("\"top_logprobs\": 3"), "logprobs");
  refused(with_fields("\"logprobs\": true, \"top_logprobs\": 21"), "top_logprobs");
  refused(with_fields("\"n\": 129"), "body.n");
  refused(with_fields("\"reasoning_effort\": \"huge\""), "huge");
  refused(with_fields("\"tool_choice\": \"required\""), "tool_choice");
  refused(with_fields("\"top_k\": -2"), "top_k");
}

TEST_CASE("an unknown field is refused by name unless that is allowed", "[cpu][batch]") {
  refused(with_fields("\"temprature\": 1"), "temprature");
  refused(R"({"custom_id": "a", "url": "/v1/chat/completions", "extra": 1, "body": {}})", "extra");
  BatchDefaults defaults;
  defaults.ignore_unknown = true;
  CHECK(parse(with_fields("\"temprature\": 1"), defaults));
}

TEST_CASE("a field that a line gives twice is refused by its path", "[cpu][batch]") {
  const auto twice = [](const std::string& line, std::string_view path) {
    refused(line, fmt::format("\"{}\" is given twice", path), "invalid_json");
  };
  twice(R"({"custom_id": "a", "custom_id": "b", "url": "/v1/chat/completions", "body": {}})",
        "custom_id");
  twice(R"({"custom_id": "a", "url": "/v1/chat/completions", "body": {}, "body": {}})", "body");
  twice(with_fields(R"("seed": 1, "seed": 2)"), "body.seed");
  twice(with_fields(R"("messages": [])"), "body.messages");
  twice(with_body(R"({"messages": [{"role": "user", "content": "x", "content": "y"}]})"),
        "body.messages[0].content");
  twice(with_fields(R"("logit_bias": {"5": 1, "5": 2})"), "body.logit_bias.5");
  twice(with_fields(R"("tools": [{"type": "function", "function": {"name": "f", "name": "g"}}])"),
        "body.tools[0].function.name");
}

TEST_CASE("broken messages are refused by place", "[cpu][batch]") {
  refused(with_body("{}"), "messages");
  refused(with_body(R"({"messages": []})"), "messages");
  refused(with_body(R"({"messages": "hi"})"), "messages");
  refused(with_body(R"({"messages": [{"role": "king", "content": "x"}]})"), "messages[0]");
}

TEST_CASE("a line of plain text is a user message after the system message", "[cpu][batch]") {
  BatchDefaults defaults;
  defaults.system = "s";
  const auto request = parse_text_line({4, "What? {\"no\": json}", false}, defaults);
  REQUIRE(request);
  CHECK(request->custom_id == "line-4");
  REQUIRE(request->messages.size() == 2);
  CHECK(request->messages[1].content == "What? {\"no\": json}");
  CHECK(!parse_text_line({4, "", true}, defaults));
}

TEST_CASE("a line of plain text that is no text is refused, and the byte is named",
          "[cpu][batch]") {
  const auto refused = [](const std::string& text, std::string_view why) {
    CAPTURE(text);
    const auto request = parse_text_line({4, text, false}, {});
    REQUIRE(!request);
    CHECK(request.error().line == 4);
    CHECK(request.error().custom_id == "line-4");
    CHECK(request.error().code == "invalid_text");
    CHECK(request.error().message.find(why) != std::string::npos);
  };
  refused(std::string("a\0b", 3), "byte 1 is NUL");
  refused("caf\xE9 au lait", "byte 3 is 0xE9, which is not UTF-8");
  refused("\u00E9\xC3", "byte 2 is 0xC3");
  CHECK(parse_text_line({4, "caf\u00E9 \uFFFD \x01", false}, {}));
}
