// Completions, several answers to a prompt, and lines that an earlier run has dealt with.
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "runtime/base/file_descriptor.hpp"
#include "src/batch/batch_job.hpp"
#include "src/batch/earlier_output.hpp"
#include "src/text/control_tokens.hpp"
#include "tests/support/fake_engine.hpp"
#include "tests/support/small_tokenizer.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using namespace ingot::test;
using nlohmann::json;

namespace {

std::string completion(const std::string& id, const std::string& fields) {
  return R"({"custom_id": ")" + id + R"(", "method": "POST", "url": "/v1/completions", "body": {)" +
         fields + "}}\n";
}
std::string chat(const std::string& id, const std::string& fields = "\"temperature\": 0") {
  return R"({"custom_id": ")" + id +
         R"(", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [{"role": )"
         R"("user", "content": "hi"}], )" +
         fields + "}}\n";
}

struct Job {
  FakeEngine engine;
  BatchOptions options;
  SchedulerOptions scheduling;
  BatchJob::Hooks hooks;
  std::string text;
  BatchCounts counts;

  std::vector<json> run(const std::string& input) {
    const TempDir folder;
    write_file(folder / "in", input);
    const int fd = ::open((folder / "in").c_str(), O_RDONLY);
    REQUIRE(fd >= 0);
    LineReader reader(fd, "in");
    Scheduler scheduler(engine, small_tokenizer(), scheduling);
    BatchJob job(scheduler, small_tokenizer(), options);
    text.clear();
    hooks.write = [&](std::string_view lines) -> Result<void> {
      text += lines;
      return {};
    };
    counts = value_or_throw(job.run(reader, hooks));
    ::close(fd);
    CHECK(engine.live_sequences() == 0);
    std::vector<json> lines;
    std::istringstream stream(text);
    for (std::string one; std::getline(stream, one);)
      lines.push_back(json::parse(one));
    return lines;
  }
};

/// What follows "abc" is "def", token by token; then the end.
FakeEngine::LogitsFunction alphabet() {
  return [](const std::vector<TokenId>& tokens, std::vector<float>& logits) {
    const std::string_view bytes = small_tokenizer().bytes(tokens.back());
    const char last = bytes.empty() ? 'a' : bytes.back();
    if (last >= 'f') {
      logits[1] = 100;
      return;
    }
    const char next = static_cast<char>(last + 1);
    logits[static_cast<std::size_t>(small_tokenizer().encode(std::string(1, next))[0])] = 100;
  };
}

}  // namespace

TEST_CASE("a completion goes on with its text or its tokens", "[cpu][batch]") {
  Job job;
  job.engine.set_logits(alphabet());
  const std::string ids = std::to_string(small_tokenizer().encode("c")[0]);
  const auto lines = job.run(completion("t", R"("prompt": "abc", "temperature": 0)") +
                             completion("i", "\"prompt\": [" + ids + "], \"temperature\": 0"));
  REQUIRE(lines.size() == 2);
  const json& body = lines[0]["response"]["body"];
  CHECK(body["object"] == "text_completion");
  CHECK(body["id"] == "cmpl-1");
  CHECK(body["choices"][0]["text"] == "def");
  CHECK(body["choices"][0]["finish_reason"] == "stop");
  CHECK(body["usage"]["prompt_tokens"] == 4);  // begin of sentence, and three letters
  CHECK(body["usage"]["completion_tokens"] == 3);
  CHECK(lines[1]["response"]["body"]["usage"]["prompt_tokens"] == 1);
  CHECK(lines[1]["response"]["body"]["choices"][0]["text"] == "def");
}

TEST_CASE("control tokens in a completion's text are text", "[cpu][batch]") {
  Job job;
  job.engine.set_logits(alphabet());
  const auto lines = job.run(completion("t", R"("prompt": "<｜User｜>c", "max_tokens": 1)"));
  CHECK(lines[0]["response"]["body"]["usage"]["prompt_tokens"] ==
        2 + small_tokenizer().encode("<｜User｜>").size());
}

TEST_CASE("a completion's log-probabilities stand beside its tokens", "[cpu][batch]") {
  Job job;
  job.engine.set_logits(alphabet());
  const auto lines = job.run(completion("t", R"("prompt": "d", "temperature": 0, "logprobs": 2)"));
  const json& logprobs = lines[0]["response"]["body"]["choices"][0]["logprobs"];
  CHECK(logprobs["tokens"] == json({"e", "f"}));
  CHECK(logprobs["text_offset"] == json({0, 1}));
  REQUIRE(logprobs["token_logprobs"].size() == 2);
  CHECK(logprobs["token_logprobs"][0].get<double>() == Approx(0).margin(1e-3));
  CHECK(logprobs["top_logprobs"][1].size() == 2);
}

TEST_CASE("what a completion cannot be is refused by name", "[cpu][batch]") {
  Job job;
  const std::vector<std::string> bad{R"("top_p": 1)",
                                     R"("prompt": ["a", "b"])",
                                     R"("prompt": [])",
                                     R"("prompt": "a", "echo": true)",
                                     R"("prompt": "a", "suffix": "z")",
                                     R"("prompt": "a", "logprobs": 6)",
                                     R"("prompt": "a", "best_of": 2)",
                                     R"("prompt": "a", "messages": [])",
                                     R"("prompt": "a", "n": 0)",
                                     R"("prompt": [999999])"};
  std::string input;
  for (std::size_t i = 0; i < bad.size(); ++i)
    input += completion(std::to_string(i), bad[i]);
  const auto lines = job.run(input);
  REQUIRE(lines.size() == bad.size());
  for (const json& line : lines) {
    CAPTURE(line.dump());
    CHECK(line["error"]["code"] == "invalid_request");
  }
  CHECK(lines[3]["error"]["message"].get<std::string>().find("body.echo") != std::string::npos);
}

TEST_CASE("a line may ask for several answers, each with a seed of its own", "[cpu][batch]") {
  Job job;
  job.scheduling.max_batch = 3;
  const auto lines = job.run(chat("a", R"("n": 5, "seed": 4, "max_tokens": 12)") +
                             chat("b", R"("seed": 6, "max_tokens": 12)"));
  REQUIRE(lines.size() == 2);
  const json& body = lines[0]["response"]["body"];
  REQUIRE(body["choices"].size() == 5);
  std::set<std::string> texts;
  std::int64_t tokens = 0;
  for (int i = 0; i < 5; ++i) {
    CHECK(body["choices"][i]["index"] == i);
    texts.insert(body["choices"][i]["message"]["content"]);
  }
  CHECK(texts.size() > 2);
  // The third is what a line with that seed gets.
  CHECK(body["choices"][2]["message"] == lines[1]["response"]["body"]["choices"][0]["message"]);
  tokens = body["usage"]["completion_tokens"];
  CHECK(tokens > 5);
  CHECK(body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"].get<int>() + tokens);
  CHECK(job.counts.answered == 2);
}

TEST_CASE("answers are written as they finish where that is asked for", "[cpu][batch]") {
  Job job;
  job.options.order = OutputOrder::finish;
  job.options.max_waiting = 4;
  std::vector<std::pair<std::int64_t, std::size_t>> noted;
  job.hooks.on_written = [&](std::int64_t line, std::size_t bytes) {
    noted.emplace_back(line, bytes);
  };
  const auto lines = job.run(chat("slow", R"("max_tokens": 40, "ignore_eos": true)") +
                             chat("quick", R"("max_tokens": 1)") + chat("bad", R"("top_p": 7)"));
  REQUIRE(lines.size() == 3);
  CHECK(lines[0]["custom_id"] == "quick");
  CHECK(lines[1]["custom_id"] == "bad");
  CHECK(lines[2]["custom_id"] == "slow");
  REQUIRE(noted.size() == 3);
  CHECK(noted[2].first == 1);
  CHECK(noted[0].second + noted[1].second + noted[2].second == job.text.size());
}

TEST_CASE("lines that an earlier run has dealt with are passed over", "[cpu][batch]") {
  const std::string input =
      chat("a") + chat("b") + "{broken\n" + chat("a") + chat("c", "\"top_p\": 7");
  Job job;
  const auto all = job.run(input);
  REQUIRE(all.size() == 5);
  // Whatever part of the output is there, the rest of it comes.
  const TempDir folder;
  write_file(folder / "in", input);
  for (unsigned there = 0; there < 32; ++there) {
    std::istringstream stream(job.text);
    std::vector<json> expected;
    std::string one, left;
    for (unsigned i = 0; std::getline(stream, one); ++i) {
      const auto answer = parse_answer_line(one);
      REQUIRE(answer);
      CHECK(answer->failed == (i >= 2));
      CHECK(answer->repeats == (i == 3));
      CHECK(answer->line == static_cast<std::int64_t>(i) + 1);
      if ((there >> i & 1) != 0) {
        left += one + "\n";
      } else {
        expected.push_back(json::parse(one));
      }
    }
    write_file(folder / "out", left);
    const FileDescriptor in(::open((folder / "in").c_str(), O_RDONLY));
    const FileDescriptor out(::open((folder / "out").c_str(), O_RDONLY));
    EarlierOutput earlier(folder / "out", false);
    value_or_throw(earlier.read(out.get()));
    LineReader reader(in.get(), "in");
    Job again;
    again.options.done = value_or_throw(earlier.compare(out.get(), reader, {"in"}));
    CAPTURE(there);
    CHECK(again.run(input) == expected);
    CHECK(again.counts.done_before == static_cast<std::int64_t>(5 - expected.size()));
  }
}

TEST_CASE("an answer's line is known from its beginning and its end", "[cpu][batch]") {
  Job job;
  (void)job.run(chat("q\\\"\\u4e2d"));
  const std::string line = job.text.substr(0, job.text.size() - 1);
  REQUIRE(parse_answer_line(line));
  CHECK(parse_answer_line(line)->custom_id == "q\"中");
  CHECK(parse_answer_line(json::parse(line).dump())->custom_id == "q\"中");
  for (std::size_t cut = 0; cut < line.size(); ++cut)
    CHECK(!parse_answer_line(line.substr(0, cut)));
  CHECK(!parse_answer_line(R"({"id": "x", "custom_id": "a", "error": null})"));
  CHECK(!parse_answer_line("7"));
}

TEST_CASE("an engine whose pages run out hundreds of times gives the same file", "[cpu][batch]") {
  std::string input;
  for (int i = 0; i < 500; ++i) {
    input += i % 10 == 3 ? "{broken\n"
                         : chat(std::to_string(i), "\"max_tokens\": " + std::to_string(1 + i % 37) +
                                                       (i % 4 == 0 ? ", \"n\": 2" : ""));
  }
  Job roomy;
  const auto expected = roomy.run(input);
  Job tight;
  tight.engine.set_pages(14, 4);  // one needs up to 12
  tight.scheduling.prefill_chunk = tight.scheduling.prefill_tokens_per_step = 3;
  const bool longest_first = GENERATE(false, true);
  tight.scheduling.longest_first = longest_first;
  CHECK(tight.run(input) == expected);
  CHECK(tight.engine.refused_steps() > 200);
  CHECK(tight.engine.pages_in_use() == 0);
  CHECK(tight.counts.failed == 50);
}

TEST_CASE("lines are dealt to machines by their number", "[cpu][batch]") {
  std::string input;
  for (int i = 0; i < 10; ++i)
    input += chat(std::to_string(i), "\"max_tokens\": 1");
  std::set<std::string> seen;
  for (std::int64_t index = 1; index <= 3; ++index) {
    Job job;
    job.options.shard = {index, 3};
    for (const json& line : job.run(input))
      CHECK(seen.insert(line["custom_id"]).second);
    CHECK(job.counts.answered == (index == 1 ? 4 : 3));
  }
  CHECK(seen.size() == 10);
}

TEST_CASE("a job that is told to finish ends what has begun", "[cpu][batch]") {
  Job job;
  job.scheduling.max_batch = 2;
  job.options.order = OutputOrder::finish;
  int steps = 0;
  job.hooks.on_progress = [&](const BatchCounts&) { ++steps; };
  job.hooks.should_finish = [&] { return steps >= 2; };
  std::string input;
  for (int i = 0; i < 50; ++i)
    input += chat(std::to_string(i), R"("max_tokens": 9, "ignore_eos": true)");
  const auto lines = job.run(input);
  CHECK(job.counts.interrupted);
  REQUIRE(lines.size() == 2);
  for (const json& line : lines)
    CHECK(line["response"]["body"]["usage"]["completion_tokens"] == 9);
}
