#include "src/schedule/scheduler.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/schedule/scheduler_running.hpp"
#include "src/text/prompt_length.hpp"

namespace ingot {

Scheduler::Scheduler(Engine& engine, const Tokenizer& tokenizer, const SchedulerOptions& options)
    : engine_(engine),
      tokenizer_(tokenizer),
      control_(ControlTokens::find(tokenizer, engine.config().eos_token_id)),
      options_(options),
      prefixes_(engine, static_cast<std::size_t>(std::max(options.kept_prefixes, 0))),
      places_(options.max_batch),
      overlaps_(engine.can_overlap()) {}

Scheduler::~Scheduler() {
  if (under_way_) {
    try {
      (void)engine_.finish();
    } catch (const EngineError&) {
      // Nobody waits for what it brings, and its sequences are given back all the same.
    }
  }
  for (const auto& running : running_) {
    if (running->has_sequence && !running->request.sequence) engine_.release(running->sequence);
  }
}

Result<RequestId> Scheduler::submit(ScheduledRequest request) {
  const GenerationRequest& generation = request.generation;
  const int vocab_size = engine_.config().vocab_size;
  if (auto valid = validate(generation.sampling, vocab_size); !valid) {
    return Unexpected(valid.error());
  }
  const auto length = static_cast<std::int64_t>(generation.prompt.size());
  if (length == 0) return fail(ErrorCode::invalid_argument, "the prompt is empty");
  for (const TokenId token : generation.prompt) {
    if (token >= 0 && token < vocab_size) continue;
    return fail(ErrorCode::invalid_argument,
                fmt::format("the prompt holds token {}, but the model's vocabulary ends at {}: the "
                            "tokenizer and the checkpoint do not belong together",
                            token, vocab_size - 1));
  }
  if (auto fits = check_prompt_fits(generation.prompt.size(), engine_.max_context()); !fits) {
    return Unexpected(fits.error());
  }
  const std::int64_t room = engine_.max_context() - length;
  auto running = std::make_unique<Running>(
      Running{.id = RequestId{next_id_++},
              .request = {},
              .generation = Generation(std::move(request.generation), tokenizer_, control_, room)});
  running->request = std::move(request);
  if (running->request.sequence) {
    running->sequence = *running->request.sequence;
    running->has_sequence = true;
    running->fed = engine_.length(running->sequence);
    if (running->fed >= length) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("the sequence holds {} tokens, which is no proper prefix of a prompt "
                              "of {}",
                              running->fed, length));
    }
  }
  const RequestId id = running->id;
  if (!running->has_sequence) prefixes_.note(running->prompt());
  waiting_.push_back(std::move(running));
  return id;
}

void Scheduler::cancel(RequestId id) {
  for (const auto& running : running_) {
    if (running->id == id) running->cancelled = true;
  }
  for (const auto& running : waiting_) {
    if (running->id == id) running->cancelled = true;
  }
}

void Scheduler::cancel_all() {
  for (const auto& running : running_)
    running->cancelled = true;
  for (const auto& running : waiting_)
    running->cancelled = true;
}

void Scheduler::cancel_waiting() {
  for (const auto& running : waiting_)
    running->cancelled |= !running->begun;
}

std::size_t Scheduler::next_waiting() const {
  // Those that gave their room back stand in front, the oldest first.
  if (!options_.longest_first || waiting_.front()->begun) return 0;
  const auto longest = std::max_element(
      waiting_.begin(), waiting_.end(),
      [](const auto& a, const auto& b) { return a->most_tokens() < b->most_tokens(); });
  return static_cast<std::size_t>(longest - waiting_.begin());
}

// Whether another request is on its way to keep more of this prompt than is kept now.
bool Scheduler::waits_for_prefix(Running& running) const {
  if (options_.kept_prefixes <= 0 || running.has_sequence) return false;
  if (!running.leader) {
    const std::int64_t kept = prefixes_.kept_length(running.prompt());
    const auto length = static_cast<std::int64_t>(running.prompt().size());
    running.leader_length = 0;
    for (const auto& other : running_) {
      if (other->keep_at.empty()) continue;
      const std::int64_t common = common_prefix(running.prompt(), other->prompt());
      for (const std::int64_t at : other->keep_at) {
        if (at > common || at >= length || at <= std::max(kept, running.leader_length)) continue;
        running.leader = other->id;
        running.leader_length = at;
      }
    }
    if (!running.leader) return false;
  }
  const auto leader = std::ranges::find_if(
      running_, [&](const auto& other) { return other->id == *running.leader; });
  if (leader != running_.end() && (*leader)->fed < running.leader_length) return true;
  running.leader.reset();  // it got there, or is gone
  return false;
}

// Gives a request its sequence: a copy of what is kept of its prompt, or an empty one.
void Scheduler::take_place(Running& running) {
  while (true) {
    try {
      const auto kept = prefixes_.take(running.prompt());
      running.sequence = kept ? *kept : engine_.create_sequence();
      running.has_sequence = true;
      running.fed = kept ? engine_.length(*kept) : 0;
      totals_.reused_tokens += std::max<std::int64_t>(running.fed - running.reached, 0);
      running.reached = std::max(running.reached, running.fed);
      running.keep_at = prefixes_.lengths_to_keep(running.prompt(), running.fed);
      return;
    } catch (const EngineError& error) {
      if (error.error().code != ErrorCode::exhausted || !prefixes_.evict()) throw;
    }
  }
}

// Whether there is a place for it in the engine.
bool Scheduler::begin(Running& running) {
  if (running.has_sequence) return true;
  try {
    take_place(running);
  } catch (const EngineError& error) {
    if (error.error().code != ErrorCode::exhausted) throw;
    if (!running_.empty()) return false;
    // Nothing of ours could be given back for it.
    Error alone = error.error();
    alone.message = fmt::format("{}: {}", running.generation.request().name, alone.message);
    running.generation.fail_with(std::move(alone));
  }
  return true;
}

void Scheduler::admit() {
  std::vector<std::unique_ptr<Running>> held;  // until another has fed what they begin with
  while (!waiting_.empty() && static_cast<int>(running_.size()) < places_) {
    const auto next = waiting_.begin() + static_cast<std::ptrdiff_t>(next_waiting());
    if (waits_for_prefix(**next)) {
      held.push_back(std::move(*next));
      waiting_.erase(next);
      continue;
    }
    if (!begin(**next)) {
      places_ = static_cast<int>(running_.size());
      break;
    }
    (*next)->begun = true;
    running_.push_back(std::move(*next));
    waiting_.erase(next);
  }
  waiting_.insert(waiting_.begin(), std::make_move_iterator(held.begin()),
                  std::make_move_iterator(held.end()));
}

void Scheduler::preempt(std::size_t victim) {
  auto running = std::move(running_[victim]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(victim));
  engine_.release(running->sequence);
  running->has_sequence = false;
  running->fed = 0;
  running->keep_at.clear();
  running->in_prompt = false;
  const auto& prompt = running->generation.request().prompt;
  const auto& tokens = running->generation.result().tokens;
  running->replay.clear();
  if (!tokens.empty()) {
    running->replay = prompt;
    running->replay.insert(running->replay.end(), tokens.begin(), tokens.end());
  }
  waiting_.push_front(std::move(running));
  ++totals_.preemptions;
  places_ = std::max(1, static_cast<int>(running_.size()));
  ended_since_preemption_ = 0;
}

// After the engine had no room for a step, and has changed nothing.
void Scheduler::make_room(const EngineError& error) {
  std::size_t victim = running_.size();
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->request.sequence) continue;  // is not ours to give back
    if (victim == running_.size() || running_[i]->id > running_[victim]->id) victim = i;
  }
  if (victim == running_.size()) throw error;
  if (running_.size() > 1) return preempt(victim);
  Error alone = error.error();
  alone.message = fmt::format("{}: {}", running_[victim]->generation.request().name, alone.message);
  running_[victim]->generation.fail_with(std::move(alone));
  retire();
}

void Scheduler::finish_cancelled() {
  const auto cancel = [](Running& running) {
    if (running.cancelled && !running.generation.done()) {
      append(running.untold, running.generation.cancel());
    }
  };
  for (const auto& running : running_)
    cancel(*running);
  for (auto& running : waiting_) {
    cancel(*running);
    if (running->generation.done()) running_.push_back(std::move(running));
  }
  std::erase(waiting_, nullptr);
  retire();
}

// Takes back what those hold that want no further token.
void Scheduler::retire() {
  for (auto& running : running_) {
    if (!running->generation.ended()) continue;
    count_end();
    if (running->has_sequence && !running->request.sequence) engine_.release(running->sequence);
    ended_.push_back(std::move(running));
  }
  std::erase(running_, nullptr);
}

void Scheduler::count_end() {
  if (places_ < options_.max_batch && ++ended_since_preemption_ >= places_) {
    ++places_;
    ended_since_preemption_ = 0;
  }
}

std::int64_t Scheduler::chunk_end(const Running& running) const {
  const auto length = static_cast<std::int64_t>(running.to_feed().size());
  const std::int64_t chunk = options_.prefill_chunk;
  std::int64_t end = std::min(length, (running.fed / chunk + 1) * chunk);
  const auto& snapshot = running.request.snapshot_at;
  if (snapshot && running.fed < *snapshot) end = std::min(end, *snapshot);
  if (!running.keep_at.empty()) end = std::min(end, running.keep_at.front());
  return end;
}

}  // namespace ingot
