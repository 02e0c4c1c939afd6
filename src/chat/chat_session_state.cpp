// The state of a conversation: what it takes of the context, what the engine makes ready for its
// next turn, and how others take it over, a branch of it or a file.
#include <algorithm>
#include <utility>

#include "src/chat/chat_session.hpp"
#include "src/text/control_tokens.hpp"

namespace ingot {
namespace {

/// Of the context beyond what is there, that the next question and its answer may need. Longer ones
/// wait for what they need first, while they are read and written.
constexpr std::int64_t kTurnTokens = 2048;

}  // namespace

std::int64_t ChatSession::held_tokens() const {
  const std::int64_t held = live_ ? engine_.length(live_->sequence) : 0;
  // What was taken back lies there until the next turn, and is no part of the conversation.
  return std::min(held, context_tokens());
}

// How much of the conversation was said: what ends its last answer comes with the next question.
std::size_t ChatSession::said_size(std::span<const TokenId> prompt) const {
  const ChatMessage& last = messages_.back();
  if (last.role != Role::assistant || last.continues || last.task != Task::none) {
    return prompt.size();
  }
  std::size_t size = prompt.size() - 1;  // EOS
  // An answer that was cut off while it was thought.
  const bool thinks = options_.encoding.thinking != Thinking::none && !last.reasoning.empty();
  if (thinks && last.content.empty() && last.tool_calls.empty() && size > 0 &&
      prompt[size - 1] == tokenizer_.added_token(control::kThinkEnd)) {
    --size;
  }
  return size;
}

std::int64_t ChatSession::context_tokens() const {
  if (context_tokens_) return *context_tokens_;
  if (messages_.empty()) return 0;
  ChatEncodingOptions encoding = options_.encoding;
  encoding.generation_prompt = false;
  const auto rendered = render_chat(messages_, encoding);
  if (!rendered) return 0;  // no turn can take anything then
  const std::vector<TokenId> prompt = encode_prompt(tokenizer_, *rendered, encoding.allow_special);
  // What the engine holds of it may be cut into tokens in another way.
  const PromptMatch match = live_ ? match_prompt(tokenizer_, live_->tokens, prompt) : PromptMatch{};
  return static_cast<std::int64_t>(match.kept + std::max(said_size(prompt), match.resume) -
                                   match.resume);
}

bool ChatSession::prepare_turn() noexcept {
  try {
    const std::int64_t held = live_ ? engine_.length(live_->sequence) : 0;
    const std::int64_t chunk = options_.scheduler.prefill_chunk;
    return engine_.prepare({.from = held,
                            .to = std::min(held + kTurnTokens, engine_.max_context()),
                            .chunk = static_cast<int>(std::min(chunk, kTurnTokens)),
                            .asked = options_.sampling.thinking_budget.has_value()});
  } catch (const std::exception&) {
    return false;  // the turn will say so
  }
}

std::unique_ptr<ChatSession> ChatSession::branch() const {
  auto other = std::make_unique<ChatSession>(engine_, tokenizer_, options_);
  other->messages_ = messages_;
  other->context_tokens_ = context_tokens_;
  // An engine that has no room for all copies gets those that save most.
  try {
    if (live_) {
      other->live_ = Held{engine_.fork(live_->sequence), live_->tokens, live_->longest};
    }
    for (auto snapshot = snapshots_.rbegin(); snapshot != snapshots_.rend(); ++snapshot) {
      other->snapshots_.push_front(
          {engine_.fork(snapshot->sequence), snapshot->tokens, snapshot->longest});
    }
  } catch (const EngineError& error) {
    if (error.error().code != ErrorCode::exhausted) throw;
  }
  return other;
}

std::vector<SavedSequence> ChatSession::save_sequences() const {
  std::vector<SavedSequence> saved;
  const auto save = [&](const Held& held) {
    if (auto state = engine_.snapshot_bytes(held.sequence)) {
      saved.push_back({held.tokens, static_cast<std::uint64_t>(held.longest), std::move(*state)});
    }
  };
  if (live_) save(*live_);
  // Enough to take the last turn back; every further one would be the whole state once more.
  if (!snapshots_.empty()) save(snapshots_.back());
  return saved;
}

Result<void> ChatSession::restore_messages(std::vector<ChatMessage> messages) {
  context_tokens_.reset();
  if (messages.empty()) {  // saved before its first question
    options_.system.clear();
    options_.tools.clear();
    messages_.clear();
    return {};
  }
  const bool has_system = !messages.empty() && messages.front().role == Role::system;
  std::string system = has_system ? messages.front().content : std::string();
  std::vector<std::string> tools = has_system ? messages.front().tools : std::vector<std::string>();
  std::swap(system, options_.system);
  std::swap(tools, options_.tools);
  auto loaded = load(std::move(messages));
  if (!loaded) {
    std::swap(system, options_.system);
    std::swap(tools, options_.tools);
  }
  return loaded;
}

Result<ChatSession::Held> ChatSession::restore(const SavedSequence& saved) {
  for (const TokenId token : saved.tokens) {
    if (token < 0 || token >= engine_.config().vocab_size) {
      return fail(ErrorCode::corrupt, "a token of the saved sequence is outside the vocabulary");
    }
  }
  const auto sequence = engine_.restore(saved.state);
  if (!sequence) return Unexpected(sequence.error());
  const std::int64_t length = engine_.length(*sequence);
  const auto tokens = static_cast<std::int64_t>(saved.tokens.size());
  const auto longest = static_cast<std::int64_t>(saved.longest);
  if (longest < length || (tokens != length && tokens != length + 1)) {
    engine_.release(*sequence);
    return fail(ErrorCode::corrupt, "the saved sequence and its tokens do not belong together");
  }
  return Held{*sequence, saved.tokens, longest};
}

Result<void> ChatSession::restore_sequences(std::span<const SavedSequence> sequences) {
  release_state();
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    auto held = restore(sequences[i]);
    if (!held) {
      release_state();
      return Unexpected(held.error());
    }
    if (i == 0) {
      live_ = std::move(*held);
    } else {
      snapshots_.push_front(std::move(*held));
    }
  }
  return {};
}

}  // namespace ingot
