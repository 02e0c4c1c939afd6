// A step of the scheduler: planned, run, and what comes of it.
#include <algorithm>
#include <utility>

#include "src/schedule/scheduler_running.hpp"

namespace ingot {

void Scheduler::make_batch() {
  batch_.steps.clear();
  batch_.members.clear();
  batch_.newest.clear();
  batch_.newest.reserve(running_.size());  // steps point into it
  batch_.prefill_tokens = 0;
  for (const auto& running : running_) {
    const auto& feed = running->to_feed();
    const auto length = static_cast<std::int64_t>(feed.size());
    running->in_prompt = false;
    if (running->fed < length) {
      const std::int64_t end = chunk_end(*running);
      const std::int64_t count = end - running->fed;
      if (batch_.prefill_tokens > 0 &&
          batch_.prefill_tokens + count > options_.prefill_tokens_per_step) {
        continue;
      }
      batch_.prefill_tokens += count;
      running->in_prompt = end < length;
      batch_.steps.push_back({running->sequence,
                              std::span(feed).subspan(static_cast<std::size_t>(running->fed),
                                                      static_cast<std::size_t>(count)),
                              end == length ? LogitsOf::last : LogitsOf::none,
                              end == length ? running->generation.sample_request() : std::nullopt});
    } else {
      batch_.newest.push_back(running->generation.newest());
      batch_.steps.push_back({running->sequence, std::span(batch_.newest).last(1), LogitsOf::last,
                              running->generation.sample_request()});
    }
    batch_.members.push_back(running.get());
  }
}

void Scheduler::run_batch() {
  const auto begin = Clock::now();
  if (overlaps_) {
    engine_.launch(batch_.steps);
  } else {
    results_ = engine_.step(batch_.steps);
  }
  const auto now = Clock::now();
  if (idle_since_) {
    const std::chrono::duration<double> idle = (overlaps_ ? now : begin) - *idle_since_;
    totals_.engine_idle_s += idle.count();
  }
  idle_since_ = now;
  under_way_ = true;
}

// Nothing is under way.
void Scheduler::begin_step() {
  finish_cancelled();
  admit();
  retire();
  while (!running_.empty()) {
    make_batch();
    try {
      return run_batch();
    } catch (const EngineError& error) {
      if (error.error().code != ErrorCode::exhausted) throw;
      if (!prefixes_.evict()) make_room(error);
    }
  }
  idle_since_.reset();  // it is nobody's fault
}

// What a step did to its sequence.
void Scheduler::count(Running& running, const SequenceStep& step) {
  const auto count = static_cast<std::int64_t>(step.tokens.size());
  const auto prompt = static_cast<std::int64_t>(running.prompt().size());
  const std::int64_t repeated = std::clamp<std::int64_t>(running.reached - running.fed, 0, count);
  totals_.repeated_tokens += repeated;
  totals_.prompt_tokens +=
      std::clamp<std::int64_t>(prompt - running.fed, 0, count) -
      std::clamp<std::int64_t>(std::min(prompt, running.reached) - running.fed, 0, count);
  running.fed += count;
  running.reached = std::max(running.reached, running.fed);
  if (!running.keep_at.empty() && running.keep_at.front() == running.fed) {
    running.keep_at.erase(running.keep_at.begin());
    prefixes_.keep(running.sequence, running.prompt().first(static_cast<std::size_t>(running.fed)));
  }
  if (running.request.snapshot_at == running.fed && running.request.on_snapshot &&
      !std::exchange(running.snapshot_taken, true)) {
    running.request.on_snapshot(engine_.fork(running.sequence));
  }
}

// As much of what a step brought as the next one's plan has to know.
void Scheduler::take(Running& running, StepLogits& result) {
  running.replay = {};  // from here on the answer's newest token is what is fed
  if (result.sampled) {
    running.generation.take(std::move(*result.sampled));
  } else {
    running.generation.take(result.row(0), sampler_);
  }
  ++totals_.generated_tokens;
  taken_.push_back(&running);
  if (!std::exchange(running.answered, true)) {
    // The first is waited for, and what the second needs may not be ready yet.
    if (running.request.on_first_token) running.request.on_first_token();
    tell(running);
  } else if (running.generation.must_tell_first()) {
    append(running.untold, running.generation.tell());
  }
}

// Of the step that is under way.
void Scheduler::end_step() {
  under_way_ = false;
  taken_.clear();
  const std::span<StepLogits> results = overlaps_ ? engine_.finish() : std::span(results_);
  if (overlaps_) idle_since_ = Clock::now();
  ++totals_.steps;
  totals_.sequence_steps += static_cast<std::int64_t>(batch_.steps.size());
  totals_.prompt_steps += batch_.prefill_tokens > 0 ? 1 : 0;
  for (std::size_t i = 0; i < batch_.steps.size(); ++i) {
    Running& running = *batch_.members[i];
    // Who was cancelled while a step is under way, or is found to have said a stop string.
    const bool left = running.cancelled || running.generation.done();
    count(running, batch_.steps[i]);
    if (batch_.steps[i].logits == LogitsOf::none) continue;
    if (left) {
      ++totals_.dropped_tokens;
    } else {
      take(running, results[i]);
    }
  }
  // Who had a chunk and wants more goes behind those that wait: a long prompt never holds up the
  // short ones, nor they it.
  if (batch_.prefill_tokens > 0) {
    std::stable_partition(running_.begin(), running_.end(),
                          [](const auto& running) { return !running->in_prompt; });
  }
  retire();
}

void Scheduler::tell(Running& running) {
  append(running.untold, running.generation.tell());
  const OutputDelta delta = std::exchange(running.untold, {});
  if (!delta.empty() && running.request.on_delta) running.request.on_delta(delta);
}

void Scheduler::report(Running& running) {
  if (std::exchange(running.reported, true)) return;
  tell(running);
  if (running.request.on_finish) running.request.on_finish(running.generation.take_result());
}

// All that can wait until the next step is under way.
void Scheduler::tell_all() {
  const auto was_taken = [&](const Running& running) {
    return std::find(taken_.begin(), taken_.end(), &running) != taken_.end();
  };
  for (const auto& running : ended_) {  // by other things than a token
    if (!was_taken(*running)) report(*running);
  }
  for (Running* const running : taken_)
    tell(*running);
  for (Running* const running : taken_) {
    if (running->generation.done()) report(*running);
  }
  taken_.clear();
  ended_.clear();
  // A stop string may have ended one that gave its room back meanwhile.
  const auto over = [](const auto& running) { return running->reported; };
  for (auto ended = std::erase_if(waiting_, over); ended > 0; --ended)
    count_end();
  if (under_way_) return;
  retire();
  ended_.clear();
}

bool Scheduler::step() {
  const auto begin = [&] {
    try {
      begin_step();
    } catch (...) {
      tell_all();
      throw;
    }
  };
  if (!under_way_) begin();
  if (under_way_) {
    end_step();
    if (overlaps_) begin();
  }
  tell_all();
  return under_way_ || !running_.empty() || !waiting_.empty();
}

}  // namespace ingot
