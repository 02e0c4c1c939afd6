#include "src/chat/chat_session.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/text/chat_order.hpp"
#include "src/text/prompt_length.hpp"

namespace ingot {
namespace {

// One is enough for dropped thinking; the others make taking back a few turns cheap.
constexpr std::size_t kMostSnapshots = 4;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// How many tokens of a prompt a step may feed so that it takes about so long: small chunks at
/// first, then as the steps before went.
class PromptPace {
 public:
  PromptPace(double step_s, int most) : step_s_(step_s), most_(most) {
    if (step_s > 0) chunk_ = std::min(kFirst, most);
  }
  int chunk() const { return step_s_ > 0 ? chunk_ : most_; }
  void took(std::int64_t tokens, double seconds) {
    if (step_s_ <= 0 || tokens <= 0) return;
    const double fit = step_s_ * static_cast<double>(tokens) / std::max(seconds, 1e-9);
    chunk_ = static_cast<int>(std::clamp(fit, 1.0, std::min(2.0 * chunk_, 1.0 * most_)));
  }

 private:
  static constexpr int kFirst = 16;
  double step_s_;
  int most_;
  int chunk_ = 0;
};

}  // namespace

TurnStats& TurnStats::operator+=(const TurnStats& later) {
  TurnStats sum = later;
  sum.prompt_tokens += prompt_tokens;
  sum.reused_tokens += reused_tokens;
  sum.unread_tokens += unread_tokens;
  sum.generated_tokens += generated_tokens;
  sum.thinking_tokens += thinking_tokens;
  sum.answer_tokens += answer_tokens;
  sum.first_token_s += first_token_s;
  sum.total_s += total_s;
  return *this = sum;
}

ChatSession::ChatSession(Engine& engine, const Tokenizer& tokenizer, ChatSessionOptions options)
    : engine_(engine), tokenizer_(tokenizer), options_(std::move(options)) {
  reset();
}

ChatSession::~ChatSession() {
  release_state();
}

void ChatSession::release_state() {
  if (live_) engine_.release(live_->sequence);
  live_.reset();
  for (const Held& snapshot : snapshots_)
    engine_.release(snapshot.sequence);
  snapshots_.clear();
}

void ChatSession::reset() {
  context_tokens_.reset();
  messages_.clear();
  if (options_.system.empty() && options_.tools.empty()) return;
  system_message().content = options_.system;
  system_message().tools = options_.tools;
}

Result<void> ChatSession::load(std::vector<ChatMessage> messages) {
  ChatEncodingOptions encoding = options_.encoding;
  encoding.generation_prompt = false;
  if (auto rendered = render_chat(messages, encoding); !rendered) {
    return Unexpected(rendered.error());
  }
  const bool has_system = !messages.empty() && messages.front().role == Role::system;
  reset();
  if (has_system) messages_.clear();
  messages_.insert(messages_.end(), std::make_move_iterator(messages.begin()),
                   std::make_move_iterator(messages.end()));
  return {};
}

bool ChatSession::awaits_answer() const {
  if (messages_.empty()) return false;
  const Role last = messages_.back().role;
  if (last == Role::assistant) return messages_.back().continues;
  return last == Role::user || last == Role::tool || last == Role::developer;
}

bool ChatSession::undo() {
  const auto last = std::find_if(messages_.rbegin(), messages_.rend(),
                                 [](const ChatMessage& m) { return m.role == Role::user; });
  if (last == messages_.rend()) return false;
  messages_.erase(std::prev(last.base()), messages_.end());
  context_tokens_.reset();
  return true;
}

void ChatSession::keep_snapshot(SequenceId sequence, std::span<const TokenId> tokens) {
  const auto length = static_cast<std::int64_t>(tokens.size());
  snapshots_.push_back(
      {sequence, {tokens.begin(), tokens.end()}, std::max(length, live_->longest)});
  if (snapshots_.size() <= kMostSnapshots) return;
  engine_.release(snapshots_.front().sequence);
  snapshots_.pop_front();
}

// How much of a prompt a sequence can go on from, its rolling back included.
PromptMatch ChatSession::usable(const Held& held, std::span<const TokenId> prompt) const {
  // A prompt that was cut short while it was fed, and comes again, has no control token there.
  const std::size_t tokens = held.tokens.size();
  if (tokens < prompt.size() &&
      std::equal(held.tokens.begin(), held.tokens.end(), prompt.begin())) {
    return {tokens, tokens};
  }
  const PromptMatch match = match_prompt(tokenizer_, held.tokens, prompt);
  const std::int64_t dropped = held.longest - static_cast<std::int64_t>(match.kept);
  return dropped <= engine_.max_rollback() ? match : PromptMatch{};
}

// Makes the live sequence stand for as long a beginning of the prompt as can be had; returns how
// long.
std::size_t ChatSession::prepare(std::span<const TokenId> prompt) {
  PromptMatch best = live_ ? usable(*live_, prompt) : PromptMatch{};
  const Held* from = nullptr;  // a snapshot, where that goes further than the live sequence
  for (const Held& snapshot : snapshots_) {
    const PromptMatch match = usable(snapshot, prompt);
    if (match.resume <= best.resume) continue;
    best = match;
    from = &snapshot;
  }
  if (from != nullptr || best.kept == 0) {
    if (live_) engine_.release(live_->sequence);
    live_.reset();  // a throw below must not leave a released sequence behind
    live_ = from != nullptr ? Held{engine_.fork(from->sequence), from->tokens, from->longest}
                            : Held{engine_.create_sequence(), {}, 0};
  }
  live_->tokens.resize(best.kept);
  const auto kept = static_cast<std::int64_t>(best.kept);
  if (kept < engine_.length(live_->sequence)) engine_.rollback(live_->sequence, kept);
  return best.resume;
}

// The system message, made where there is none.
ChatMessage& ChatSession::system_message() {
  context_tokens_.reset();
  if (messages_.empty() || messages_.front().role != Role::system) {
    messages_.insert(messages_.begin(), ChatMessage());
    messages_.front().role = Role::system;
  }
  return messages_.front();
}

void ChatSession::drop_empty_system_message() {
  const ChatMessage& system = messages_.front();
  if (system.content.empty() && system.tools.empty() && system.response_format.empty()) {
    messages_.erase(messages_.begin());
  }
}

void ChatSession::set_system(std::string text) {
  options_.system = std::move(text);
  system_message().content = options_.system;
  drop_empty_system_message();
}

void ChatSession::set_tools(std::vector<std::string> tools) {
  options_.tools = std::move(tools);
  system_message().tools = options_.tools;
  drop_empty_system_message();
}

std::vector<ToolCall> ChatSession::open_calls() const {
  std::vector<ToolCall> open;
  std::size_t results = 0;
  for (auto message = messages_.rbegin(); message != messages_.rend(); ++message) {
    if (message->role == Role::tool) {
      ++results;
      continue;
    }
    if (message->role == Role::assistant && results < message->tool_calls.size()) {
      open.assign(message->tool_calls.begin() + static_cast<std::ptrdiff_t>(results),
                  message->tool_calls.end());
    }
    break;
  }
  return open;
}

void ChatSession::add_tool_result(const ToolCall& call, std::string result) {
  ChatMessage message;
  message.role = Role::tool;
  message.tool_call_id = call.id;
  message.content = std::move(result);
  messages_.push_back(std::move(message));
  context_tokens_.reset();
}

// Ids of calls are ours: the model gives none. Unique in the conversation.
void ChatSession::number_calls(std::vector<ToolCall>& calls) const {
  std::size_t number = 0;
  for (const ChatMessage& message : messages_)
    number += message.tool_calls.size();
  for (ToolCall& call : calls) {
    if (call.id.empty()) call.id = "call_" + std::to_string(++number);
  }
}

std::string_view ChatSession::system() const {
  const bool has_one = !messages_.empty() && messages_.front().role == Role::system;
  return has_one ? std::string_view(messages_.front().content) : std::string_view();
}

bool ChatSession::begun() const {
  return std::any_of(messages_.begin(), messages_.end(),
                     [](const ChatMessage& m) { return m.role != Role::system; });
}

Result<TurnStats> ChatSession::ask(std::string text, const OnDelta& on_delta,
                                   const ShouldStop& should_stop, const OnPrefill& on_prefill) {
  ChatMessage question;
  question.role = Role::user;
  question.content = std::move(text);
  // Who asks something else has the begun answer end where it is.
  const bool continued = !messages_.empty() && std::exchange(messages_.back().continues, false);
  messages_.push_back(std::move(question));
  auto stats = answer(on_delta, should_stop, on_prefill);
  if (!stats) {
    messages_.pop_back();
    if (continued) messages_.back().continues = true;
  }
  return stats;
}

Result<TurnStats> ChatSession::retry(const OnDelta& on_delta, const ShouldStop& should_stop,
                                     const OnPrefill& on_prefill) {
  if (messages_.empty() || messages_.back().role != Role::assistant) {
    return fail(ErrorCode::invalid_argument, "there is no answer to try again");
  }
  ChatMessage before = std::move(messages_.back());
  const auto tokens_before = context_tokens_;
  messages_.pop_back();
  ++options_.sampling.seed;
  auto stats = answer(on_delta, should_stop, on_prefill);
  if (!stats || awaits_answer()) {
    messages_.push_back(std::move(before));
    context_tokens_ = tokens_before;
  }
  return stats;
}

Result<TurnStats> ChatSession::answer(const OnDelta& on_delta, const ShouldStop& should_stop,
                                      const OnPrefill& on_prefill) {
  const auto tokens_before = context_tokens_;
  const auto unchanged = [&](const Error& error) {
    context_tokens_ = tokens_before;
    return Unexpected(error);
  };
  try {
    auto stats = generate(on_delta, should_stop, on_prefill);
    return stats ? stats : unchanged(stats.error());
  } catch (const EngineError& error) {
    if (error.error().code != ErrorCode::exhausted) throw;
    // Where the sequence stands is not known any more, and there is too little room anyway.
    release_state();
    return unchanged(error.error());
  }
}

Result<TurnStats> ChatSession::generate(const OnDelta& on_delta, const ShouldStop& should_stop,
                                        const OnPrefill& on_prefill) {
  const auto start = Clock::now();
  context_tokens_.reset();
  if (auto answerable = check_answerable(messages_); !answerable) {
    return Unexpected(answerable.error());
  }
  const bool continues = messages_.back().continues;
  const auto rendered = render_chat(messages_, options_.encoding);
  if (!rendered) return Unexpected(rendered.error());
  if (auto fits = check_text_fits(tokenizer_, rendered->bytes(), engine_.max_context()); !fits) {
    return Unexpected(fits.error());
  }
  const std::vector<TokenId> prompt =
      encode_prompt(tokenizer_, *rendered, options_.encoding.allow_special);

  TurnStats stats;
  GenerationResult result;
  stats.prompt_tokens = static_cast<std::int64_t>(prompt.size());
  const std::size_t resume = prepare(prompt);

  // What the sequence holds and what the prompt says may be cut into tokens differently: the prompt
  // that is fed begins with what it holds.
  std::vector<TokenId> fed = live_->tokens;
  fed.insert(fed.end(), prompt.begin() + static_cast<std::ptrdiff_t>(resume), prompt.end());
  const std::int64_t held = engine_.length(live_->sequence);
  stats.reused_tokens = stats.prompt_tokens - (static_cast<std::int64_t>(fed.size()) - held);

  // A long prompt that is stopped midway cannot be rolled back out of the sequence.
  if (held > 0 && static_cast<std::int64_t>(fed.size()) - held > engine_.max_rollback()) {
    keep_snapshot(engine_.fork(live_->sequence), live_->tokens);
  }

  ScheduledRequest request;
  request.generation.name = "this turn";
  request.generation.prompt = fed;
  request.generation.thinking = options_.encoding.thinking != Thinking::none && !continues;
  request.generation.sampling = options_.sampling;
  request.sequence = live_->sequence;
  // Before the last token of the prompt: that is the one that says whether the model thinks, and
  // the one that changes when this turn's thinking is dropped later.
  const auto snapshot_at = static_cast<std::int64_t>(fed.size()) - 1;
  if (snapshot_at > held) {
    request.snapshot_at = snapshot_at;
    request.on_snapshot = [&](SequenceId sequence) {
      keep_snapshot(sequence, std::span(fed).first(static_cast<std::size_t>(snapshot_at)));
    };
  }
  request.on_first_token = [&] { stats.first_token_s = seconds_since(start); };
  request.on_delta = on_delta;
  request.on_finish = [&](GenerationResult finished) { result = std::move(finished); };
  // One an answer: what throws leaves nothing behind in it.
  Scheduler scheduler(engine_, tokenizer_, options_.scheduler);
  const auto id = scheduler.submit(std::move(request));
  if (!id) return Unexpected(id.error());

  PromptPace pace(options_.step_s, options_.scheduler.prefill_chunk);
  bool more = true;
  while (more) {
    if (should_stop()) scheduler.cancel(*id);
    scheduler.set_prefill_chunk(pace.chunk());
    const std::int64_t fed_before = scheduler.totals().prompt_tokens;
    const auto step_start = Clock::now();
    more = scheduler.step();
    pace.took(scheduler.totals().prompt_tokens - fed_before, seconds_since(step_start));
    if (more && on_prefill && stats.first_token_s == 0) {
      on_prefill(held + scheduler.totals().prompt_tokens, static_cast<std::int64_t>(fed.size()));
    }
  }
  // Of a prompt that was cut short a part was fed.
  const auto whole = static_cast<std::int64_t>(fed.size());
  fed.resize(std::min(fed.size(), static_cast<std::size_t>(engine_.length(live_->sequence))));
  stats.unread_tokens = whole - static_cast<std::int64_t>(fed.size());
  fed.insert(fed.end(), result.tokens.begin(), result.tokens.end());
  live_->tokens = std::move(fed);
  live_->longest = std::max(live_->longest, engine_.length(live_->sequence));
  if (result.error) return Unexpected(*result.error);

  stats.total_s = seconds_since(start);
  stats.finish_reason = result.finish_reason;
  stats.context_tokens = static_cast<std::int64_t>(live_->tokens.size());
  stats.context_limit = engine_.max_context();
  context_tokens_ = stats.context_tokens;
  number_calls(result.tool_calls);
  stats.generated_tokens = static_cast<std::int64_t>(result.tokens.size());
  stats.thinking_tokens = result.thinking_tokens;
  stats.answer_tokens = stats.generated_tokens - result.answer_begin();
  if (result.finish_reason == FinishReason::cancelled && result.tokens.empty()) return stats;

  if (continues) {
    ChatMessage& begun = messages_.back();
    begun.content += result.content;
    begun.tool_calls.insert(begun.tool_calls.end(), result.tool_calls.begin(),
                            result.tool_calls.end());
    begun.continues = false;
    return stats;
  }
  ChatMessage reply;
  reply.role = Role::assistant;
  reply.content = std::move(result.content);
  reply.reasoning = std::move(result.reasoning);
  reply.tool_calls = std::move(result.tool_calls);
  messages_.push_back(std::move(reply));
  return stats;
}

}  // namespace ingot
