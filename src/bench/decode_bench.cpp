#include "src/bench/decode_bench.hpp"

#include <algorithm>
#include <chrono>

#include "src/bench/held_sequences.hpp"
#include "src/plan/memory_plan.hpp"
#include "src/plan/step_cost.hpp"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kEngineSteps = 4;  // of Engine::step(): the first of them is not timed
constexpr int kWarmUpSteps = 1;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double multiply_us(const Operations& operations, const CardRates& rates) {
  return operations.fp8 / rates.fp8_per_us + operations.bf16 / rates.f16_per_us;
}

std::vector<TokenId> made_up_tokens(const ModelConfig& config, std::int64_t count) {
  std::vector<TokenId> tokens;
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    tokens.push_back(
        static_cast<TokenId>((state >> 8) % static_cast<std::uint32_t>(config.vocab_size)));
  }
  return tokens;
}

double engine_step_us(Engine& engine, const std::vector<SequenceId>& sequences) {
  const std::vector<TokenId> tokens =
      made_up_tokens(engine.config(), static_cast<std::int64_t>(sequences.size()));
  std::vector<SequenceStep> batch;
  for (std::size_t i = 0; i < sequences.size(); ++i)
    batch.push_back({.sequence = sequences[i], .tokens = std::span(tokens).subspan(i, 1)});
  auto start = Clock::now();
  for (int step = 0; step < kEngineSteps; ++step) {
    if (step == kWarmUpSteps) start = Clock::now();
    (void)engine.step(batch);
  }
  return microseconds_since(start) / (kEngineSteps - kWarmUpSteps);
}

}  // namespace

StepFloor decode_floor(const ModelConfig& config, int tp_size, const DecodeCell& cell,
                       double distinct_experts, const CardRates& rates) {
  StepFloor floor;
  Operations operations = weight_operations(config, tp_size, true);
  operations += context_operations(config, tp_size, cell.context);
  operations.fp8 *= cell.batch;
  operations.bf16 *= cell.batch;
  floor.operations = operations.all();
  floor.bytes = weight_reads(config, tp_size).bytes(distinct_experts) +
                static_cast<double>(context_reads(config, cell.context)) * cell.batch;
  floor.us = std::max(cold_read_us(rates.reads, floor.bytes), multiply_us(operations, rates));
  return floor;
}

std::int64_t context_tokens_of(const std::vector<DecodeCell>& cells) {
  std::int64_t most = 0;
  for (const DecodeCell& cell : cells) {
    const std::int64_t pages = (cell.context + kHcaPageTokens - 1) / kHcaPageTokens;
    most = std::max(most, cell.batch * pages * kHcaPageTokens);
  }
  return most;
}

DecodeResult measure_decode(DeviceEngine& engine, int tp_size, const DecodeCell& cell, int steps,
                            const CardRates& rates) {
  DecodeResult result{.cell = cell, .refusal = {}, .timing = {}, .floor = {}};
  const std::int64_t filled = cell.context - timed_decode_tokens(steps) - kEngineSteps;
  if (filled < 0) {
    result.refusal = "the context is shorter than the steps that are timed";
    return result;
  }
  HeldSequences sequences(engine);
  try {
    for (int i = 0; i < cell.batch; ++i)
      sequences.add(engine.create_filled(filled));
  } catch (const EngineError& error) {
    if (error.error().code != ErrorCode::exhausted) throw;
    result.refusal = error.what();
    return result;
  }
  result.timing = engine.time_decode(sequences.ids(), steps);
  result.engine_us = engine_step_us(engine, sequences.ids());
  result.floor = decode_floor(engine.config(), tp_size, cell, result.timing.experts_read, rates);
  return result;
}

PrefillResult measure_prefill(DeviceEngine& engine, int tp_size, std::int64_t tokens, int chunk,
                              const CardRates& rates) {
  const std::vector<TokenId> prompt = made_up_tokens(engine.config(), tokens);
  PrefillResult result{.tokens = tokens, .chunk = chunk, .last = {}};
  for (const bool timed : {false, false, true}) {
    const std::int64_t graphs_before = engine.stats().graph_steps;
    HeldSequences sequences(engine);
    sequences.add(engine.create_sequence());
    const auto start = Clock::now();
    for (std::int64_t at = 0; at < tokens; at += chunk) {
      const std::int64_t count = std::min<std::int64_t>(chunk, tokens - at);
      const SequenceStep step{.sequence = sequences.ids().front(),
                              .tokens = std::span(prompt).subspan(static_cast<std::size_t>(at),
                                                                  static_cast<std::size_t>(count)),
                              .logits = at + count == tokens ? LogitsOf::last : LogitsOf::none};
      (void)engine.step({&step, 1});
    }
    result.us = microseconds_since(start);
    result.graph_steps = static_cast<int>(engine.stats().graph_steps - graphs_before);
    if (timed) result.last = engine.time_newest_pass();
  }
  Operations operations = weight_operations(engine.config(), tp_size, false);
  operations.fp8 *= static_cast<double>(tokens);
  operations.bf16 *= static_cast<double>(tokens);
  for (std::int64_t length = 1; length <= tokens; ++length)
    operations += context_operations(engine.config(), tp_size, length);
  result.operations = operations.all();
  result.floor_us = multiply_us(operations, rates);
  return result;
}

}  // namespace ingot
