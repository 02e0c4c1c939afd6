#include "src/bench/serve_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "src/bench/held_sequences.hpp"
#include "src/text/control_tokens.hpp"
#include "src/text/json_value.hpp"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::uint64_t next_random(std::uint64_t& state) {
  state = state * 6364136223846793005 + 1442695040888963407;
  return state >> 33;
}

std::int64_t drawn(const TokenRange& range, std::uint64_t& state) {
  const auto values = static_cast<std::uint64_t>(range.most - range.least + 1);
  return range.least + static_cast<std::int64_t>(next_random(state) % values);
}

/// The smallest value that `share` of all do not exceed.
double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::max<std::size_t>(rank, 1) - 1];
}

/// One run of a load.
class ClosedLoop {
 public:
  ClosedLoop(Engine& engine, const Tokenizer& tokenizer, const ServeLoad& load)
      : engine_(engine),
        load_(load),
        scheduler_(engine, tokenizer,
                   {.max_batch = load.concurrency,
                    .prefill_chunk = load.prefill_chunk,
                    .prefill_tokens_per_step = load.prefill_chunk}),
        random_(load.seed) {}

  ServeResult run() {
    const auto before = engine_.counts();
    const auto start = Clock::now();
    auto step_start = start;
    while (ended_ < load_.requests) {
      while (submitted_ < load_.requests && submitted_ - ended_ < load_.concurrency)
        submit();
      const Scheduler::Totals then = scheduler_.totals();
      (void)scheduler_.step();
      if (failure_) throw EngineError(std::move(*failure_));
      const std::chrono::duration<double> took = Clock::now() - step_start;
      step_start = Clock::now();
      if (scheduler_.totals().prompt_steps > then.prompt_steps) continue;
      result_.decode_s += took.count();
      result_.decode_steps += scheduler_.totals().steps - then.steps;
      result_.decode_tokens += scheduler_.totals().generated_tokens - then.generated_tokens;
    }
    result_.seconds = seconds_since(start);
    result_.load = load_;
    result_.totals = scheduler_.totals();
    result_.first_token_median_ms = 1e3 * quantile(first_token_s_, 0.5);
    result_.first_token_p99_ms = 1e3 * quantile(first_token_s_, 0.99);
    result_.mean_context = contexts_ / static_cast<double>(result_.totals.generated_tokens);
    if (const auto after = engine_.counts(); before && after) {
      result_.graph_steps = after->graph_steps - before->graph_steps;
      result_.kernels_compiled = after->kernels_compiled - before->kernels_compiled;
    }
    return result_;
  }

 private:
  void submit() {
    ++submitted_;
    ScheduledRequest request;
    GenerationRequest& asked = request.generation;
    asked.name = "a request of the bench";
    asked.plain = true;
    asked.prompt =
        made_up_prompt(random_, drawn(load_.input, random_), engine_.config().vocab_size);
    asked.sampling.temperature = 0;
    asked.sampling.ignore_eos = true;
    asked.sampling.max_tokens = drawn(load_.output, random_);
    const auto start = Clock::now();
    request.on_first_token = [this, start] { first_token_s_.push_back(seconds_since(start)); };
    request.on_finish = [this](const GenerationResult& answer) {
      if (answer.error) failure_ = answer.error;
      const auto said = static_cast<double>(answer.tokens.size());
      contexts_ += said * static_cast<double>(answer.prompt_tokens) + said * (said - 1) / 2;
      ++ended_;
    };
    value_or_throw(scheduler_.submit(std::move(request)));
  }

  Engine& engine_;
  const ServeLoad& load_;
  Scheduler scheduler_;
  std::uint64_t random_;
  int submitted_ = 0, ended_ = 0;
  std::vector<double> first_token_s_;
  double contexts_ = 0;  // tokens before each that was chosen, over all
  std::optional<Error> failure_;
  ServeResult result_;
};

/// The letter that stands for a byte in a vocabulary: printable Latin-1 for itself, the others
/// follow from U+0100.
std::string byte_letter(unsigned byte) {
  const auto printable = [](unsigned b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
  };
  unsigned point = byte;
  if (!printable(byte)) {
    point = 0x100;
    for (unsigned b = 0; b < byte; ++b)
      point += printable(b) ? 0 : 1;
  }
  if (point < 0x80) return {static_cast<char>(point)};
  return {static_cast<char>(0xC0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3F))};
}

}  // namespace

double ServeResult::output_tokens_per_s() const {
  return static_cast<double>(totals.generated_tokens) / seconds;
}

double ServeResult::input_tokens_per_s() const {
  return static_cast<double>(totals.prompt_tokens) / seconds;
}

double ServeResult::steps_per_s() const {
  return static_cast<double>(totals.steps) / seconds;
}

double ServeResult::mean_batch() const {
  return static_cast<double>(totals.sequence_steps) / static_cast<double>(totals.steps);
}

double ServeResult::decode_tokens_per_s() const {
  return decode_tokens > 0 ? static_cast<double>(decode_tokens) / decode_s : 0;
}

double ServeResult::decode_mean_batch() const {
  return decode_steps > 0 ? static_cast<double>(decode_tokens) / static_cast<double>(decode_steps)
                          : 0;
}

double ServeResult::prompt_share() const {
  return 1 - decode_s / seconds;
}

double ServeResult::idle_share() const {
  return totals.engine_idle_s / seconds;
}

double ServeResult::decode_share_of_alone() const {
  return decode_alone_tokens_per_s > 0 ? decode_tokens_per_s() / decode_alone_tokens_per_s : 0;
}

double ServeResult::share_of_alone() const {
  return alone_tokens_per_s > 0 ? output_tokens_per_s() / alone_tokens_per_s : 0;
}

ServeResult measure_serve(Engine& engine, const Tokenizer& tokenizer, const ServeLoad& load) {
  const std::int64_t longest = load.input.most + load.output.most;
  if (longest > engine.max_context()) {
    throw EngineError(ErrorCode::invalid_argument,
                      fmt::format("serving prompts of up to {} tokens and answers of up to {}: the "
                                  "engine's context is {}",
                                  load.input.most, load.output.most, engine.max_context()));
  }
  ServeLoad first = load;
  first.requests = std::min(load.requests, 2 * load.concurrency);
  (void)ClosedLoop(engine, tokenizer, first).run();
  return ClosedLoop(engine, tokenizer, load).run();
}

double decode_tokens_per_s(Engine& engine, int batch, std::int64_t context, int steps) {
  constexpr std::int64_t kChunk = 256;
  const int vocab = engine.config().vocab_size;
  std::uint64_t random = 1;
  HeldSequences sequences(engine);
  for (int i = 0; i < batch; ++i) {
    sequences.add(engine.create_sequence());
    const std::vector<TokenId> prompt = made_up_prompt(random, context, vocab);
    for (std::int64_t at = 0; at < context; at += kChunk) {
      const auto count = static_cast<std::size_t>(std::min(kChunk, context - at));
      const SequenceStep chunk{
          .sequence = sequences.ids().back(),
          .tokens = std::span(prompt).subspan(static_cast<std::size_t>(at), count),
          .logits = LogitsOf::none};
      (void)engine.step({&chunk, 1});
    }
  }
  SamplingParams greedy;
  greedy.temperature = 0;
  const TokenHistory history;
  Sampler sampler;
  std::vector<TokenId> newest(static_cast<std::size_t>(batch), 0);
  auto start = Clock::now();
  for (int step = -1; step < steps; ++step) {  // the first is not timed
    if (step == 0) start = Clock::now();
    std::vector<SequenceStep> all;
    for (std::size_t i = 0; i < newest.size(); ++i) {
      all.push_back({.sequence = sequences.ids()[i],
                     .tokens = std::span(newest).subspan(i, 1),
                     .sample = SampleRequest{&greedy, &history, context + step + 1}});
    }
    std::vector<StepLogits> results = engine.step(all);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const auto chosen = results[i].sampled
                              ? std::move(*results[i].sampled)
                              : sampler.sample(results[i].row(0), greedy, history, 0);
      newest[i] = value_or_throw(chosen).id;
    }
  }
  return batch * static_cast<double>(steps) / seconds_since(start);
}

Tokenizer made_up_tokenizer(int vocab_size) {
  std::string vocab, markers;
  unsigned id = 0;
  for (; id < static_cast<unsigned>(std::max(vocab_size, 256)); ++id) {
    const std::string text = id < 256 ? byte_letter(id) : byte_letter(' ') + fmt::format("w{}", id);
    vocab += fmt::format("{}{}: {}", id == 0 ? "" : ", ", to_python_json(text), id);
  }
  // Behind the model's own ids: what it says never ends or steers an answer.
  for (const std::string_view marker : control::kAll) {
    markers += fmt::format("{}{{\"id\": {}, \"content\": {}, \"special\": true}}",
                           markers.empty() ? "" : ", ", id++, to_python_json(marker));
  }
  const std::string json = fmt::format(
      R"({{"version": "1.0", "added_tokens": [{}], "normalizer": null, "pre_tokenizer": {{"type":
"Sequence", "pretokenizers": [{{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
"use_regex": false}}]}}, "post_processor": null, "decoder": {{"type": "ByteLevel"}}, "model": {{"type":
"BPE", "vocab": {{{}}}, "merges": []}}}})",
      markers, vocab);
  return value_or_throw(Tokenizer::parse(json, "made-up vocabulary"));
}

std::vector<TokenId> made_up_prompt(std::uint64_t& state, std::int64_t count, int vocab_size) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  for (TokenId& token : tokens) {
    token = static_cast<TokenId>(next_random(state) % static_cast<std::uint64_t>(vocab_size));
  }
  return tokens;
}

}  // namespace ingot
