#include "tests/support/fake_engine.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <utility>

#include "src/text/control_tokens.hpp"
#include "tests/support/small_tokenizer.hpp"

namespace ingot::test {
namespace {

void noise(const std::vector<TokenId>& tokens, std::vector<float>& logits) {
  std::uint64_t state = 0x9E3779B97F4A7C15;
  for (const TokenId token : tokens) {
    state = (state ^ static_cast<std::uint64_t>(token)) * 0x100000001B3;
  }
  for (float& logit : logits) {
    state = state * 6364136223846793005 + 1442695040888963407;
    logit = static_cast<float>(state >> 40) * 0x1p-22f;  // 0 … 4
  }
}

}  // namespace

FakeEngine::FakeEngine(int vocab_size) : function_(noise) {
  config_.vocab_size = vocab_size;
  config_.eos_token_id = 1;
  config_.max_position_embeddings = max_context_;
}

const std::vector<TokenId>& FakeEngine::find(SequenceId sequence) const {
  const auto found = sequences_.find(static_cast<std::uint64_t>(sequence));
  if (found == sequences_.end()) throw std::logic_error("fake engine: unknown sequence");
  for (const Given& given : under_way_) {
    if (given.step.sequence == sequence) {
      throw std::logic_error("fake engine: a sequence that takes part in a step is touched");
    }
  }
  return found->second;
}

SequenceId FakeEngine::create_sequence() {
  if (sequences_.size() >= max_sequences_) {
    throw EngineError(ErrorCode::exhausted, "the fake engine's places are taken");
  }
  sequences_[next_];
  return SequenceId{next_++};
}

SequenceId FakeEngine::fork(SequenceId sequence) {
  const std::vector<TokenId> tokens = find(sequence);
  const SequenceId made = create_sequence();
  sequences_[static_cast<std::uint64_t>(made)] = tokens;
  return made;
}

void FakeEngine::release(SequenceId sequence) {
  find(sequence);
  sequences_.erase(static_cast<std::uint64_t>(sequence));
}

std::int64_t FakeEngine::length(SequenceId sequence) const {
  return static_cast<std::int64_t>(find(sequence).size());
}

void FakeEngine::rollback(SequenceId sequence, std::int64_t length) {
  const std::int64_t dropped = this->length(sequence) - length;
  if (length < 0 || dropped < 0 || dropped > max_rollback_) {
    throw std::logic_error("fake engine: rollback out of range");
  }
  sequences_[static_cast<std::uint64_t>(sequence)].resize(static_cast<std::size_t>(length));
}

Result<std::string> FakeEngine::snapshot_bytes(SequenceId sequence) const {
  if (!can_snapshot_) return Engine::snapshot_bytes(sequence);
  const std::vector<TokenId>& tokens = find(sequence);
  return std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(TokenId));
}

Result<SequenceId> FakeEngine::restore(std::string_view bytes) {
  if (!can_snapshot_) return Engine::restore(bytes);
  if (bytes.size() % sizeof(TokenId) != 0) return fail(ErrorCode::corrupt, "no whole tokens");
  std::vector<TokenId> tokens(bytes.size() / sizeof(TokenId));
  std::memcpy(tokens.data(), bytes.data(), bytes.size());
  const SequenceId sequence = create_sequence();
  sequences_[static_cast<std::uint64_t>(sequence)] = std::move(tokens);
  return sequence;
}

std::int64_t FakeEngine::pages_in_use() const {
  std::int64_t pages = 0;
  for (const auto& [id, tokens] : sequences_)
    pages += (static_cast<std::int64_t>(tokens.size()) + page_tokens_ - 1) / page_tokens_;
  return pages;
}

std::optional<EngineRoom> FakeEngine::room() const {
  if (pages_ == INT64_MAX) return std::nullopt;
  return EngineRoom{.used = pages_in_use(), .total = pages_};
}

std::vector<StepLogits> FakeEngine::step(std::span<const SequenceStep> batch) {
  if (overlaps_) {
    launch(batch);
    (void)finish();
    return std::move(results_);
  }
  return run(batch);
}

void FakeEngine::launch(std::span<const SequenceStep> batch) {
  if (!overlaps_) return Engine::launch(batch);
  if (is_under_way()) throw std::logic_error("fake engine: a step is under way already");
  if (batch.empty()) throw std::logic_error("fake engine: a step of nobody");
  results_ = run(batch);
  for (const SequenceStep& step : batch)
    under_way_.push_back({step, {step.tokens.begin(), step.tokens.end()}});
}

std::span<StepLogits> FakeEngine::finish() {
  if (!overlaps_) return Engine::finish();
  if (!is_under_way()) throw std::logic_error("fake engine: no step is under way");
  const std::vector<Given> given = std::exchange(under_way_, {});
  for (const Given& one : given) {
    if (!std::ranges::equal(one.tokens, one.step.tokens)) {
      throw std::logic_error("fake engine: tokens of a step changed while it was under way");
    }
  }
  if (before_finish_) before_finish_(steps_);
  return results_;
}

std::vector<StepLogits> FakeEngine::run(std::span<const SequenceStep> batch) {
  ++steps_;
  if (before_step_) before_step_(steps_);
  std::set<std::uint64_t> seen;
  for (const SequenceStep& step : batch) {
    if (!seen.insert(static_cast<std::uint64_t>(step.sequence)).second) {
      throw std::logic_error("fake engine: a sequence twice in a step");
    }
    if (step.tokens.empty()) throw std::logic_error("fake engine: a step without tokens");
    if (step.sample && step.logits != LogitsOf::last) {
      throw std::logic_error("fake engine: a token to choose, but not behind the last one");
    }
    if (length(step.sequence) + static_cast<std::int64_t>(step.tokens.size()) > max_context_) {
      throw std::logic_error("fake engine: context overflow");
    }
  }
  if (pages_ != INT64_MAX) {
    std::int64_t needed = pages_in_use();
    for (const SequenceStep& step : batch) {
      const std::int64_t now = length(step.sequence);
      const std::int64_t then = now + static_cast<std::int64_t>(step.tokens.size());
      needed += (then + page_tokens_ - 1) / page_tokens_ - (now + page_tokens_ - 1) / page_tokens_;
    }
    if (needed > pages_) {
      ++refused_steps_;
      throw EngineError(ErrorCode::exhausted, "the fake engine's pages are in use");
    }
  }
  widest_batch_ = std::max(widest_batch_, batch.size());
  std::vector<StepLogits> results;
  for (const SequenceStep& step : batch) {
    auto& tokens = sequences_[static_cast<std::uint64_t>(step.sequence)];
    StepLogits& result = results.emplace_back();
    std::vector<float> row(static_cast<std::size_t>(config_.vocab_size));
    for (std::size_t i = 0; i < step.tokens.size(); ++i) {
      const TokenId token = step.tokens[i];
      if (token < 0 || token >= config_.vocab_size) {
        throw std::logic_error("fake engine: token outside the vocabulary");
      }
      tokens.push_back(token);
      ++tokens_fed_;
      const bool last = i + 1 == step.tokens.size();
      if (step.logits == LogitsOf::none || (step.logits == LogitsOf::last && !last)) continue;
      std::fill(row.begin(), row.end(), 0.0f);
      function_(tokens, row);
      if (step.sample && takes_ && takes_(*step.sample->params)) {
        result.sampled = sampler_.sample(row, *step.sample->params, *step.sample->history,
                                         step.sample->position);
        ++tokens_sampled_;
        continue;
      }
      result.values.insert(result.values.end(), row.begin(), row.end());
      ++result.rows;
    }
  }
  return results;
}

FakeEngine::LogitsFunction scripted(std::vector<TokenId> answer) {
  const TokenId assistant = control_id(control::kAssistant);
  return [answer = std::move(answer), assistant](const std::vector<TokenId>& tokens,
                                                 std::vector<float>& logits) {
    const auto begin = std::find(tokens.rbegin(), tokens.rend(), assistant);
    const auto since = begin - tokens.rbegin();  // tokens after <｜Assistant｜>
    const auto at = static_cast<std::size_t>(std::max<std::ptrdiff_t>(since - 1, 0));
    logits[static_cast<std::size_t>(at < answer.size() ? answer[at] : 1)] = 100;
  };
}

FakeEngine::LogitsFunction scripted_text(const std::string& answer) {
  return scripted(small_tokenizer().encode(answer, AddedTokens::recognise));
}

}  // namespace ingot::test
