#include "src/batch/batch_job.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/batch/batch_answer.hpp"
#include "tests/support/fake_engine.hpp"
#include "tests/support/small_tokenizer.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using namespace ingot::test;
using nlohmann::json;

namespace {

std::string line(std::string_view id, std::string_view fields = "\"temperature\": 0") {
  return fmt::format(
      "{{\"custom_id\": \"{}\", \"method\": \"POST\", \"url\": "
      "\"/v1/chat/completions\", \"body\": {{\"messages\": [{{\"role\": \"user\", "
      "\"content\": \"hi {}\"}}], {}}}}}\n",
      id, id, fields);
}

struct Ran {
  BatchCounts counts;
  std::vector<json> lines;
  std::string text;
};

struct Job {
  FakeEngine engine;
  BatchOptions options;
  SchedulerOptions scheduling;
  std::function<bool()> should_stop = [] { return false; };

  Ran run(const std::string& input) {
    const TempDir folder;
    write_file(folder / "in", input);
    const int fd = ::open((folder / "in").c_str(), O_RDONLY);
    REQUIRE(fd >= 0);
    LineReader reader(fd, "in");
    Scheduler scheduler(engine, small_tokenizer(), scheduling);
    BatchJob job(scheduler, small_tokenizer(), options);
    Ran ran;
    BatchJob::Hooks hooks;
    hooks.write = [&](std::string_view lines) -> Result<void> {
      ran.text += lines;
      return {};
    };
    hooks.should_stop = should_stop;
    ran.counts = value_or_throw(job.run(reader, hooks));
    ::close(fd);
    std::istringstream stream(ran.text);
    std::string one;
    while (!options.plain_text && std::getline(stream, one))
      ran.lines.push_back(json::parse(one));
    CHECK(engine.live_sequences() == 0);
    return ran;
  }
};

/// Lines of every kind that fails, behind one whose custom_id is "a".
std::vector<std::string> bad_lines() {
  const auto bare = [](std::string_view id, std::string_view fields) {
    const std::string whole = line(id, fields);
    return whole.substr(0, whole.size() - 1);
  };
  return {"null",
          "[1,2]",
          "\"x\"",
          "\xFF\xFE",
          std::string("\0", 1),
          "{\"custom_id\": \"z\"}",
          "not json",
          bare("nul", "\"seed\": 1").insert(20, 1, '\0'),
          R"({"custom_id": "1", "url": "/v1/chat/completions"})",
          R"({"custom_id": "2", "url": "/v1/chat/completions", "body": "text"})",
          R"({"custom_id": "3", "url": "/v1/embeddings", "body": {}})",
          bare("4", "\"stream\": true"),
          bare("5", "\"max_tokens\": 0"),
          bare("6", "\"max_tokens\": -1"),
          bare("7", "\"temperature\": NaN"),
          bare("8", "\"top_p\": 2"),
          bare("9", "\"seed\": 1, \"seed\": 1"),
          bare("a", "\"seed\": 1"),  // a second time
          std::string(std::size_t{17} << 20, ' ') + "x"};
}

}  // namespace

TEST_CASE("each line is answered with OpenAI's batch object, in input order", "[cpu][batch]") {
  Job job;
  job.engine.set_logits(scripted_text("hello\nyou"));
  job.options.defaults.model = "the-model";
  const Ran ran = job.run(line("one") + line("two"));
  CHECK(ran.counts.answered == 2);
  CHECK(ran.counts.failed == 0);
  REQUIRE(ran.lines.size() == 2);
  const json& first = ran.lines[0];
  CHECK(first["custom_id"] == "one");
  CHECK(first["id"] == "batch_req_1");
  CHECK(first["error"].is_null());
  CHECK(first["response"]["status_code"] == 200);
  const json& body = first["response"]["body"];
  CHECK(body["object"] == "chat.completion");
  CHECK(body["model"] == "the-model");
  CHECK(body["choices"].size() == 1);
  CHECK(body["choices"][0]["message"]["role"] == "assistant");
  CHECK(body["choices"][0]["message"]["content"] == "hello\nyou");
  CHECK(body["choices"][0]["finish_reason"] == "stop");
  CHECK(body["choices"][0]["logprobs"].is_null());
  CHECK(body["usage"]["completion_tokens"] == 9);
  CHECK(body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"].get<int>() + 9);
  CHECK(ran.lines[1]["custom_id"] == "two");
}

TEST_CASE("a finished answer at the end is refused, a begun one is continued", "[cpu][batch]") {
  const auto request = [](std::string_view id, std::string_view more) {
    return fmt::format(
        "{{\"custom_id\": \"{}\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", "
        "\"body\": {{\"messages\": [{{\"role\": \"user\", \"content\": \"hi\"}}, "
        "{{\"role\": \"assistant\", \"content\": \"he\"{}}}], \"temperature\": 0}}}}\n",
        id, more);
  };
  Job job;
  const Thinking thinking = GENERATE(Thinking::none, Thinking::high);
  // The script counts from <｜Assistant｜>: <think> and </think> stand before a begun answer, or
  // </think> alone.
  job.engine.set_logits(scripted_text(thinking == Thinking::none ? "hello" : "-hello"));
  job.options.defaults.thinking = thinking;
  const Ran ran = job.run(request("finished", "") + request("begun", ", \"prefix\": true"));
  REQUIRE(ran.lines.size() == 2);
  CHECK(ran.lines[0]["error"]["message"].get<std::string>().find("`prefix: true`") !=
        std::string::npos);
  CHECK(ran.lines[1]["response"]["body"]["choices"][0]["message"]["content"] == "llo");
}

TEST_CASE("empty and blank lines are skipped and counted", "[cpu][batch]") {
  Job job;
  job.engine.set_logits(scripted_text("x"));
  const Ran ran = job.run("\n" + line("a") + "  \t\n\r\n" + line("b") + "\n");
  CHECK(ran.counts.blank == 4);
  CHECK(ran.lines.size() == 2);
  CHECK(ran.lines[1]["id"] == "batch_req_5");  // numbers are those of the file
}

TEST_CASE("a byte-order mark and CRLF are accepted", "[cpu][batch]") {
  Job job;
  job.engine.set_logits(scripted_text("x"));
  std::string text = "\xEF\xBB\xBF" + line("a") + line("b");
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) {
    text.replace(at, 1, "\r\n");
  }
  const Ran ran = job.run(text);
  CHECK(ran.counts.answered == 2);
  CHECK(ran.counts.failed == 0);
}

TEST_CASE("a bad line fails alone and the rest is answered as if it were not there",
          "[cpu][batch]") {
  const std::vector<std::string> bad = bad_lines();
  Job clean;
  const Ran expected = clean.run(line("a", "\"max_tokens\": 9") + line("b", "\"max_tokens\": 9"));
  Job job;
  std::string input = line("a", "\"max_tokens\": 9");
  for (const std::string& each : bad)
    input += each + "\n";
  input += line("b", "\"max_tokens\": 9");
  const Ran ran = job.run(input);
  CHECK(ran.counts.answered == 2);
  CHECK(ran.counts.failed == static_cast<std::int64_t>(bad.size()));
  REQUIRE(ran.lines.size() == bad.size() + 2);
  CHECK(ran.lines.front() == expected.lines.front());
  CHECK(ran.lines.back()["response"]["body"]["choices"] ==
        expected.lines.back()["response"]["body"]["choices"]);
  for (std::size_t i = 1; i <= bad.size(); ++i) {
    CHECK(ran.lines[i]["response"].is_null());
    CHECK(ran.lines[i]["error"]["line"] == i + 1);
    CHECK(ran.lines[i]["error"]["message"].get<std::string>().find(fmt::format("line {}", i + 1)) ==
          0);
  }
}

TEST_CASE("bad lines under load neither delay nor change a good one", "[cpu][batch]") {
  constexpr std::size_t kGood = 160;
  std::vector<std::string> bad = bad_lines();
  bad.pop_back();  // 17 MiB: once is enough
  std::string good, mixed;
  for (std::size_t i = 0; i < kGood; ++i) {
    const std::string one = line(i == 0 ? "a" : fmt::format("good {}", i),
                                 fmt::format("\"max_tokens\": {}", 1 + i * 7 % 23));
    good += one;
    mixed += one;
    for (std::size_t b = 0; b < 1 + i % 5; ++b)
      mixed += bad[(i * 3 + b) % bad.size()] + "\n";
  }
  Job clean, loaded;
  clean.options.order = loaded.options.order = OutputOrder::finish;
  clean.scheduling.max_batch = loaded.scheduling.max_batch = 6;
  const Ran expected = clean.run(good);
  const Ran ran = loaded.run(mixed);
  CHECK(ran.counts.answered == static_cast<std::int64_t>(kGood));
  CHECK(ran.counts.failed > 400);
  // Not a step more, and the good ones end in the order in which they ended without the bad.
  CHECK(loaded.engine.steps() == clean.engine.steps());
  CHECK(loaded.engine.tokens_fed() == clean.engine.tokens_fed());
  std::vector<json> answers;
  for (const json& one : ran.lines) {
    if (one["error"].is_null()) answers.push_back(one);
  }
  REQUIRE(answers.size() == expected.lines.size());
  for (std::size_t i = 0; i < answers.size(); ++i) {
    CHECK(answers[i]["custom_id"] == expected.lines[i]["custom_id"]);
    CHECK(answers[i]["response"]["body"]["choices"] ==
          expected.lines[i]["response"]["body"]["choices"]);
  }
}

TEST_CASE("of two lines with one custom_id the second fails", "[cpu][batch]") {
  Job job;
  job.engine.set_logits(scripted_text("x"));
  const Ran ran = job.run(line("same") + line("same") + line("other"));
  CHECK(ran.counts.answered == 2);
  REQUIRE(ran.lines.size() == 3);
  CHECK(ran.lines[1]["error"]["code"] == "duplicate_custom_id");
  CHECK(ran.lines[1]["custom_id"] == "same");
}

TEST_CASE("a prompt over the context limit fails with both numbers", "[cpu][batch]") {
  Job job;
  job.engine.set_logits(scripted_text("x"));
  job.engine.set_max_context(60);
  const Ran ran = job.run(line(std::string(100, 'p')) + line("ok"));
  REQUIRE(ran.lines.size() == 2);
  const std::string message = ran.lines[0]["error"]["message"];
  CHECK(message.find("107 tokens") != std::string::npos);
  CHECK(message.find("60") != std::string::npos);
  CHECK(ran.counts.answered == 1);
}

TEST_CASE("max_tokens of 0 or less fails, more than is left is clipped with length",
          "[cpu][batch]") {
  Job job;
  job.engine.set_logits(scripted_text(std::string(100, 'a')));
  job.engine.set_max_context(30);
  const Ran ran = job.run(line("a", "\"max_tokens\": 0") + line("b", "\"max_tokens\": -3") +
                          line("c", "\"max_tokens\": 1000000"));
  REQUIRE(ran.lines.size() == 3);
  CHECK(ran.lines[0]["error"]["message"].get<std::string>().find("max_tokens") !=
        std::string::npos);
  CHECK(!ran.lines[1]["error"].is_null());
  const json& body = ran.lines[2]["response"]["body"];
  CHECK(body["choices"][0]["finish_reason"] == "length");
  CHECK(body["usage"]["total_tokens"] == 30);
}

TEST_CASE("a temperature of NaN and a top_p of 2 fail by name", "[cpu][batch]") {
  Job job;
  const Ran ran = job.run(line("a", "\"temperature\": NaN") + line("b", "\"top_p\": 2") +
                          line("c", "\"temperature\": 1e400"));
  CHECK(ran.counts.failed == 3);
  CHECK(ran.lines[1]["error"]["message"].get<std::string>().find("top_p is 2") !=
        std::string::npos);
}

TEST_CASE("answers stay in input order whichever ends first", "[cpu][batch]") {
  Job job;
  job.scheduling.max_batch = 4;
  std::string input;
  for (int i = 0; i < 40; ++i) {
    input += line(std::to_string(i), fmt::format("\"max_tokens\": {}", 1 + (i * 17) % 23));
  }
  const Ran ran = job.run(input);
  REQUIRE(ran.lines.size() == 40);
  for (int i = 0; i < 40; ++i)
    CHECK(ran.lines[static_cast<std::size_t>(i)]["custom_id"] == std::to_string(i));
  CHECK(job.engine.widest_batch() == 4);
}

TEST_CASE("the same input gives the same bytes for any batch, chunk and window", "[cpu][batch]") {
  std::string input;
  for (int i = 0; i < 30; ++i) {
    input += line(std::to_string(i),
                  fmt::format("\"max_tokens\": {}, \"logprobs\": true, \"top_logprobs\": 2",
                              1 + (i * 5) % 11));
  }
  Job plain;
  const std::string expected = plain.run(input).text;
  Job other;
  other.scheduling = GENERATE(SchedulerOptions{1, 512, 512}, SchedulerOptions{16, 3, 3},
                              SchedulerOptions{7, 64, 128});
  other.options.window = GENERATE(1u, 5u, 1000u);
  CHECK(other.run(input).text == expected);
}

TEST_CASE("memory does not grow with the input: few lines are in flight", "[cpu][batch]") {
  Job job;
  job.options.window = 8;
  job.options.max_waiting = 2;
  job.scheduling.max_batch = 2;
  job.engine.set_logits(scripted_text("x"));
  std::size_t most = 0;
  job.engine.set_before_step([&](int) { most = std::max(most, job.engine.live_sequences()); });
  std::string input;
  for (int i = 0; i < 300; ++i)
    input += line(std::to_string(i));
  CHECK(job.run(input).counts.answered == 300);
  CHECK(most <= 2);
}

TEST_CASE("an interrupt keeps the lines that are finished and drops those in flight",
          "[cpu][batch]") {
  Job job;
  job.scheduling.max_batch = 3;
  job.should_stop = [&] { return job.engine.steps() >= 12; };
  std::string input = line("long", "\"max_tokens\": 1000, \"ignore_eos\": true");
  for (int i = 0; i < 50; ++i)
    input += line(std::to_string(i), "\"max_tokens\": 3, \"ignore_eos\": true");
  const Ran ran = job.run(input);
  CHECK(ran.counts.interrupted);
  CHECK(ran.counts.answered == static_cast<std::int64_t>(ran.lines.size()));
  CHECK(ran.counts.answered >= 4);
  for (const json& each : ran.lines)
    CHECK(each["custom_id"] != "long");
}

TEST_CASE("log-probabilities are reported as OpenAI does", "[cpu][batch]") {
  Job job;
  job.engine.set_logits(scripted_text("é!"));
  const Ran ran = job.run(line("a", "\"temperature\": 0, \"logprobs\": true, \"top_logprobs\": 2"));
  REQUIRE(ran.lines.size() == 1);
  const json& content = ran.lines[0]["response"]["body"]["choices"][0]["logprobs"]["content"];
  REQUIRE(content.size() == 3);  // the first letter is two bytes, each a token
  CHECK(content[0]["bytes"] == json::array({0xC3}));
  CHECK(content[0]["token"] == "\xEF\xBF\xBD");
  CHECK(content[2]["token"] == "!");
  CHECK(content[2]["top_logprobs"].size() == 2);
  CHECK(content[2]["logprob"].get<double>() == Approx(0).margin(1e-6));
}

TEST_CASE("thinking and tool calls have their own fields in the answer", "[cpu][batch]") {
  Job job;
  job.engine.set_logits(scripted_text(
      "why</think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter "
      "name=\"n\" "
      "string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"));
  const Ran ran = job.run(line("a", "\"temperature\": 0, \"reasoning_effort\": \"high\""));
  REQUIRE(ran.lines.size() == 1);
  const json& body = ran.lines[0]["response"]["body"];
  const json& message = body["choices"][0]["message"];
  CHECK(body["choices"][0]["finish_reason"] == "tool_calls");
  CHECK(message["content"].is_null());
  CHECK(message["reasoning_content"] == "why");
  REQUIRE(message["tool_calls"].size() == 1);
  CHECK(message["tool_calls"][0]["id"] == "call_1_0");
  CHECK(message["tool_calls"][0]["type"] == "function");
  CHECK(message["tool_calls"][0]["function"]["name"] == "f");
  CHECK(json::parse(message["tool_calls"][0]["function"]["arguments"].get<std::string>()) ==
        json{{"n", 3}});
  CHECK(body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 3);
}

TEST_CASE("log-probabilities of thinking and of the answer leave out what stands between them",
          "[cpu][batch]") {
  Job job;
  job.engine.set_logits(scripted_text("xyz</think>ok"));
  const int budget = GENERATE(0, 1, 5);
  CAPTURE(budget);
  const Ran ran = job.run(line(
      "a", fmt::format("\"temperature\": 0, \"reasoning_effort\": \"high\", \"logprobs\": true, "
                       "\"thinking_budget\": {}",
                       budget)));
  REQUIRE(ran.lines.size() == 1);
  const json& body = ran.lines[0]["response"]["body"];
  const json& choice = body["choices"][0];
  const auto texts = [](const json& list) {
    std::string all;
    for (const json& token : list)
      all += token["token"].get<std::string>();
    return all;
  };
  const std::string thought = std::string("xyz").substr(0, static_cast<std::size_t>(budget));
  const int thinking = std::min(budget, 3);
  CHECK(choice["message"].value("reasoning_content", "") == thought);
  CHECK(choice["logprobs"].contains("reasoning_content") == (thinking > 0));
  if (thinking > 0) CHECK(texts(choice["logprobs"]["reasoning_content"]) == thought);
  CHECK(texts(choice["logprobs"]["content"]) == choice["message"]["content"].get<std::string>());
  CHECK(body["usage"]["completion_tokens_details"]["reasoning_tokens"] == thinking);
  CHECK(body["usage"]["completion_tokens"] ==
        thinking + 1 + static_cast<int>(choice["logprobs"]["content"].size()));
}

TEST_CASE("plain text in and out is one line each", "[cpu][batch]") {
  Job job;
  job.options.format = BatchFormat::text;
  job.options.plain_text = true;
  job.options.defaults.sampling.temperature = 0;
  job.engine.set_logits(scripted_text("two\nlines \\ and\r more"));
  const Ran ran = job.run("first\n\nsecond");
  CHECK(ran.counts.answered == 2);
  CHECK(ran.text == "two\\nlines \\\\ and\\r more\n\ntwo\\nlines \\\\ and\\r more\n");
}

TEST_CASE("answers alone stand beside their lines, whatever these are", "[cpu][batch]") {
  const std::string input = "\n" + line("a") + " \t\r\n" + "broken\n" + line("a") +
                            line("n", "\"temperature\": 0, \"n\": 2") + "\n" +
                            line("long", "\"n\": 3, \"stop_token_ids\": [999999]") + line("z") +
                            "\n\n";
  Job job;
  job.options.plain_text = true;
  job.engine.set_logits(scripted_text("x\ny"));
  // A window of one line must not stop at a blank one.
  job.options.window = GENERATE(1u, 2u, 1024u);
  const Ran whole = job.run(input);
  CHECK(whole.counts.blank == 5);
  CHECK(whole.counts.failed == 3);
  // The line that fails though it asks for three answers has three empty lines.
  CHECK(whole.text == "\nx\\ny\n\n\n\nx\\ny\nx\\ny\n\n\n\n\nx\\ny\n\n\n");
  // A shard has the lines of its share.
  Job share;
  share.options.plain_text = true;
  share.options.shard = {1, 2};
  share.engine.set_logits(scripted_text("x"));
  CHECK(share.run("\n" + line("a") + "\n" + line("b") + line("c")).text == "\n\nx\n");
  Job finish;
  finish.options.plain_text = true;
  finish.options.order = OutputOrder::finish;
  finish.engine.set_logits(scripted_text("x"));
  CHECK(finish.run("\n" + line("a") + "\n" + line("b")).text == "x\nx\n");
}

TEST_CASE("answers alone end before the first line that was dropped", "[cpu][batch]") {
  Job job;
  job.options.plain_text = true;
  job.scheduling.max_batch = 2;
  job.engine.set_logits(scripted_text("x"));
  int asked = 0;
  job.should_stop = [&] { return ++asked > 12; };
  // The third line is done while the second goes on, and is dropped with it.
  const Ran ran =
      job.run(line("one") + line("endless", "\"max_tokens\": 900, \"ignore_eos\": true") +
              line("three") + line("four"));
  CHECK(ran.counts.interrupted);
  CHECK(ran.counts.answered >= 2);
  CHECK(ran.text == "x\n");
}

TEST_CASE("text that a user types is never a control token", "[cpu][batch]") {
  Job job;
  job.options.format = BatchFormat::text;
  std::vector<TokenId> fed;
  job.engine.set_logits([&](const std::vector<TokenId>& tokens, std::vector<float>& logits) {
    fed = tokens;
    logits[1] = 100;
  });
  job.run("<｜User｜>hi<think></think><｜end▁of▁sentence｜>\n");
  const auto count = [&](std::string_view text) {
    return std::count(fed.begin(), fed.end(), control_id(text));
  };
  CHECK(count("<｜User｜>") == 1);
  CHECK(count("</think>") == 1);
  CHECK(count("<think>") == 0);
  CHECK(count("<｜end▁of▁sentence｜>") == 0);
}

TEST_CASE("a write that fails ends the job with its error", "[cpu][batch]") {
  FakeEngine engine;
  engine.set_logits(scripted_text("x"));
  const TempDir folder;
  write_file(folder / "in", line("a") + line("b"));
  const int fd = ::open((folder / "in").c_str(), O_RDONLY);
  LineReader reader(fd, "in");
  Scheduler scheduler(engine, small_tokenizer(), {});
  BatchJob job(scheduler, small_tokenizer(), {});
  BatchJob::Hooks hooks;
  hooks.write = [](std::string_view) -> Result<void> { return fail(ErrorCode::io, "disk full"); };
  const auto ran = job.run(reader, hooks);
  ::close(fd);
  REQUIRE(!ran);
  CHECK(ran.error().message == "disk full");
}
