#include "src/schedule/scheduler.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "src/text/prompt_length.hpp"

namespace ingot {

struct Scheduler::Running {
  RequestId id{};
  ScheduledRequest request;
  Generation generation;
  SequenceId sequence{};
  bool has_sequence = false;
  std::int64_t fed = 0;  ///< tokens of prompt and answer that the sequence holds
  bool cancelled = false;
  bool in_prompt = false;  ///< the newest step fed a chunk of the prompt, and more is left
  std::vector<std::int64_t> keep_at = {};  ///< lengths of which a copy will be kept, ascending
  /// One that is about to feed what this prompt begins with too, and how much of it.
  std::optional<RequestId> leader = std::nullopt;
  std::int64_t leader_length = 0;

  std::span<const TokenId> prompt() const { return generation.request().prompt; }
};

Scheduler::Scheduler(Engine& engine, const Tokenizer& tokenizer, const SchedulerOptions& options)
    : engine_(engine),
      tokenizer_(tokenizer),
      control_(ControlTokens::find(tokenizer, engine.config().eos_token_id)),
      options_(options),
      prefixes_(engine, static_cast<std::size_t>(std::max(options.kept_prefixes, 0))) {}

Scheduler::~Scheduler() {
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

void Scheduler::admit() {
  while (!waiting_.empty() && running_.size() < static_cast<std::size_t>(options_.max_batch)) {
    auto running = std::move(waiting_.front());
    waiting_.pop_front();
    running_.push_back(std::move(running));
  }
}

void Scheduler::finish_cancelled() {
  const auto cancel = [](Running& running) {
    if (!running.cancelled || running.generation.done()) return;
    const OutputDelta delta = running.generation.cancel();
    if (!delta.empty() && running.request.on_delta) running.request.on_delta(delta);
  };
  for (const auto& running : running_)
    cancel(*running);
  for (auto& running : waiting_) {
    cancel(*running);
    if (running->generation.done()) running_.push_back(std::move(running));
  }
  std::erase(waiting_, nullptr);
  retire_done();
}

void Scheduler::retire_done() {
  // Taken out first: a callback may look at the scheduler.
  std::vector<std::unique_ptr<Running>> done;
  for (auto& running : running_) {
    if (running->generation.done()) done.push_back(std::move(running));
  }
  std::erase(running_, nullptr);
  for (const auto& running : done) {
    if (running->has_sequence && !running->request.sequence) engine_.release(running->sequence);
    if (running->request.on_finish) running->request.on_finish(running->generation.take_result());
  }
}

// Whether another request is on its way to keep more of this prompt than is kept now.
bool Scheduler::waits_for_prefix(Running& running) const {
  if (options_.kept_prefixes <= 0) return false;
  if (!running.leader) {
    const std::int64_t kept = prefixes_.kept_length(running.prompt());
    const auto length = static_cast<std::int64_t>(running.prompt().size());
    for (const auto& other : running_) {
      if (!other->has_sequence || other->keep_at.empty()) continue;
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
void Scheduler::begin(Running& running) {
  while (true) {
    try {
      const auto kept = prefixes_.take(running.prompt());
      running.sequence = kept ? *kept : engine_.create_sequence();
      running.has_sequence = true;
      running.fed = kept ? engine_.length(*kept) : 0;
      totals_.reused_tokens += running.fed;
      running.keep_at = prefixes_.lengths_to_keep(running.prompt(), running.fed);
      return;
    } catch (const EngineError& error) {
      if (error.error().code != ErrorCode::exhausted || !prefixes_.evict()) throw;
    }
  }
}

// A step that the engine has no room for changes nothing: kept copies make room for it.
std::vector<StepLogits> Scheduler::run(std::span<const SequenceStep> batch) {
  while (true) {
    try {
      return engine_.step(batch);
    } catch (const EngineError& error) {
      if (error.error().code != ErrorCode::exhausted || !prefixes_.evict()) throw;
    }
  }
}

std::int64_t Scheduler::chunk_end(const Running& running) const {
  const auto length = running.generation.result().prompt_tokens;
  const std::int64_t chunk = options_.prefill_chunk;
  std::int64_t end = std::min(length, (running.fed / chunk + 1) * chunk);
  const auto& snapshot = running.request.snapshot_at;
  if (snapshot && running.fed < *snapshot) end = std::min(end, *snapshot);
  if (!running.keep_at.empty()) end = std::min(end, running.keep_at.front());
  return end;
}

bool Scheduler::step() {
  finish_cancelled();
  admit();
  if (running_.empty()) return false;

  std::vector<SequenceStep> batch;
  std::vector<Running*> members;
  std::int64_t prefill_tokens = 0;
  for (const auto& running : running_) {
    const auto& prompt = running->generation.request().prompt;
    const auto length = static_cast<std::int64_t>(prompt.size());
    running->in_prompt = false;
    if (!running->has_sequence) {
      if (waits_for_prefix(*running)) continue;
      begin(*running);
    }
    if (running->fed < length) {
      const std::int64_t end = chunk_end(*running);
      const std::int64_t count = end - running->fed;
      if (prefill_tokens > 0 && prefill_tokens + count > options_.prefill_tokens_per_step) continue;
      prefill_tokens += count;
      running->in_prompt = end < length;
      batch.push_back({running->sequence,
                       std::span(prompt).subspan(static_cast<std::size_t>(running->fed),
                                                 static_cast<std::size_t>(count)),
                       end == length ? LogitsOf::last : LogitsOf::none,
                       end == length ? running->generation.sample_request() : std::nullopt});
    } else {
      const auto& tokens = running->generation.result().tokens;
      batch.push_back({running->sequence, std::span(tokens).last(1), LogitsOf::last,
                       running->generation.sample_request()});
    }
    members.push_back(running.get());
  }

  std::vector<StepLogits> results = run(batch);
  ++totals_.steps;
  totals_.prompt_tokens += prefill_tokens;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    Running& running = *members[i];
    running.fed += static_cast<std::int64_t>(batch[i].tokens.size());
    if (!running.keep_at.empty() && running.keep_at.front() == running.fed) {
      running.keep_at.erase(running.keep_at.begin());
      prefixes_.keep(running.sequence,
                     running.prompt().first(static_cast<std::size_t>(running.fed)));
    }
    if (running.request.snapshot_at == running.fed && running.request.on_snapshot) {
      running.request.on_snapshot(engine_.fork(running.sequence));
    }
    if (batch[i].logits == LogitsOf::none) continue;
    StepLogits& result = results[i];
    const OutputDelta delta = result.sampled ? running.generation.accept(std::move(*result.sampled))
                                             : running.generation.accept(result.row(0), sampler_);
    ++totals_.generated_tokens;
    if (!delta.empty() && running.request.on_delta) running.request.on_delta(delta);
  }
  // Who had a chunk and wants more goes behind those that wait: a long prompt never holds up the
  // short ones, nor they it.
  std::stable_partition(running_.begin(), running_.end(),
                        [](const auto& running) { return !running->in_prompt; });
  retire_done();
  return !running_.empty() || !waiting_.empty();
}

}  // namespace ingot
