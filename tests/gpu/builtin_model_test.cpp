// The built-in model on the GPU against the same on the CPU: logits, and whole answers.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/reference/reference_engine.hpp"
#include "src/schedule/scheduler.hpp"
#include "src/text/chat_encoding.hpp"
#include "src/text/prompt_length.hpp"
#include "src/weights/open_checkpoint.hpp"
#include "tests/gpu/device_model.hpp"

using namespace ingot;
using test::relative_error;

namespace {

constexpr std::int64_t kContext = 4096;

std::filesystem::path model_folder() {
  return test::golden_dir().parent_path().parent_path() / "configs/models/ingot-tiny";
}

struct Question {
  std::vector<TokenId> prompt;
  bool thinks = false;
};

std::vector<Question> questions(const Tokenizer& tokenizer) {
  std::vector<Question> all;
  std::istringstream lines(test::read_file(test::golden_dir() / "builtin_model/questions.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto body = nlohmann::json::parse(line)["request"]["body"];
    ChatMessage message;
    message.role = Role::user;
    message.content = body["messages"][0]["content"];
    ChatEncodingOptions encoding;
    const bool thinks = body["reasoning_effort"] != "none";
    encoding.thinking = thinks ? Thinking::high : Thinking::none;
    const auto rendered = value_or_throw(render_chat({&message, 1}, encoding));
    all.push_back({encode_prompt(tokenizer, rendered), thinks});
  }
  return all;
}

std::vector<std::vector<TokenId>> greedy_answers(Engine& engine, const Tokenizer& tokenizer,
                                                 const std::vector<Question>& asked) {
  std::vector<std::vector<TokenId>> answers(asked.size());
  Scheduler scheduler(engine, tokenizer, {.max_batch = 16, .kept_prefixes = 4});
  for (std::size_t i = 0; i < asked.size(); ++i) {
    ScheduledRequest request;
    request.generation.name = fmt::format("question {}", i);
    request.generation.prompt = asked[i].prompt;
    request.generation.thinking = asked[i].thinks;
    request.generation.sampling.temperature = 0;
    request.generation.sampling.max_tokens = asked[i].thinks ? 120 : 60;
    request.on_finish = [&answers, i](GenerationResult result) {
      REQUIRE_FALSE(result.error);
      answers[i] = std::move(result.tokens);
    };
    value_or_throw(scheduler.submit(std::move(request)));
  }
  while (scheduler.step()) {
  }
  return answers;
}

StepLogits all_logits(Engine& engine, std::span<const TokenId> tokens) {
  const SequenceId sequence = engine.create_sequence();
  const SequenceStep step{sequence, tokens, LogitsOf::all};
  StepLogits logits = std::move(engine.step({&step, 1})[0]);
  engine.release(sequence);
  return logits;
}

}  // namespace

TEST_CASE("the built-in model says on the GPU what it says on the CPU",
          "[gpu][model][builtin][long]") {
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(model_folder()));
  const Tokenizer tokenizer = value_or_throw(Tokenizer::load(model_folder()));
  const auto engine =
      test::device_engine(checkpoint, {.max_context = kContext, .max_sequences = 32});
  if (!engine) return;
  ReferenceEngine reference(value_or_throw(open_checkpoint(model_folder())),
                            {.max_context = kContext});
  const auto asked = questions(tokenizer);
  const auto wanted = greedy_answers(reference, tokenizer, asked);
  const auto got = greedy_answers(*engine, tokenizer, asked);
  std::size_t same = 0;
  std::vector<double> errors;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const std::string text = tokenizer.decode(wanted[i]), ours = tokenizer.decode(got[i]);
    same += text == ours ? 1 : 0;
    if (text != ours)
      fmt::print("question {}: \"{}\" on the CPU, \"{}\" on the GPU\n", i, text, ours);
    if (i % 4 != 0) continue;
    std::vector<TokenId> tokens = asked[i].prompt;
    tokens.insert(tokens.end(), wanted[i].begin(), wanted[i].end());
    const StepLogits a = all_logits(*engine, tokens), b = all_logits(reference, tokens);
    for (int r = 0; r < b.rows; ++r)
      errors.push_back(relative_error(a.row(r), b.row(r)));
  }
  std::ranges::sort(errors);
  const double median = errors[errors.size() / 2];
  fmt::print(
      "ingot-tiny: {} of {} answers the same; {} rows of logits, median error {:.4f}, "
      "99th percentile {:.4f}; {} tokens chosen on the GPU\n",
      same, asked.size(), errors.size(), median, errors[errors.size() * 99 / 100],
      engine->stats().tokens_sampled);
  CHECK(median < 0.03);
  CHECK(same * 100 >= asked.size() * 98);
  CHECK(engine->stats().tokens_sampled > 1000);
}
