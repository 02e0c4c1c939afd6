#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/chat/prompt_match.hpp"
#include "src/chat/session_file.hpp"
#include "src/engine/engine.hpp"
#include "src/sampler/sampling_params.hpp"
#include "src/schedule/scheduler.hpp"
#include "src/text/chat_encoding.hpp"
#include "src/text/chat_message.hpp"
#include "src/text/tokenizer.hpp"

namespace ingot {

struct ChatSessionOptions {
  ChatEncodingOptions encoding;
  SamplingParams sampling;
  SchedulerOptions scheduler;
  /// Chunks of a prompt are cut so that a step takes about this long, for an engine so slow that
  /// one could not be stopped soon enough; 0: as the scheduler's options say.
  double step_s = 0;
  std::string system;
  std::vector<std::string> tools;  ///< JSON text of each function that the model may call
};

/// What one answer cost.
struct TurnStats {
  std::int64_t prompt_tokens = 0;
  std::int64_t reused_tokens = 0;  ///< of the prompt, that the sequence held already
  std::int64_t unread_tokens = 0;  ///< of the prompt, that the engine never got: it was stopped
  /// Both kinds, and `</think>` between them, which counts as neither.
  std::int64_t generated_tokens = 0;
  std::int64_t thinking_tokens = 0;
  std::int64_t answer_tokens = 0;
  double first_token_s = 0;  ///< from the question to the first token; 0 where none came
  double total_s = 0;
  FinishReason finish_reason = FinishReason::stop;
  std::int64_t context_tokens = 0;  ///< that the conversation takes now
  std::int64_t context_limit = 0;   ///< that it may take

  std::int64_t prefilled_tokens() const { return prompt_tokens - reused_tokens - unread_tokens; }
  bool any_token() const { return generated_tokens > 0; }

  /// Of both together: counts and times; the rest is of the later one.
  TurnStats& operator+=(const TurnStats& later);
};

/// A conversation whose state stays in the engine between turns: a new turn feeds only what the
/// sequence does not hold yet. Where the prompt parts from it — thinking that is dropped, a turn
/// that is taken back — the session goes back by rollback, or to one of the snapshots that it keeps
/// at the ends of the last prompts, and feeds the rest. One thread at a time; engine and tokenizer
/// must outlive it.
class ChatSession {
 public:
  ChatSession(Engine& engine, const Tokenizer& tokenizer, ChatSessionOptions options);
  ChatSession(const ChatSession&) = delete;
  ChatSession& operator=(const ChatSession&) = delete;
  ~ChatSession();

  using OnDelta = std::function<void(const OutputDelta&)>;
  using ShouldStop = std::function<bool()>;
  /// Hears between the steps of a prompt how many of its tokens are in place.
  using OnPrefill = std::function<void(std::int64_t done, std::int64_t all)>;

  /// Begins with these messages instead.
  /// Error: what render_chat reports (roles out of order).
  [[nodiscard]] Result<void> load(std::vector<ChatMessage> messages);
  /// Whether the conversation waits for the model: it ends with a user's or a tool's message, or
  /// with an answer that is to be continued.
  bool awaits_answer() const;

  /// Adds a user's message and answers it. `should_stop` is asked between steps; a stopped answer
  /// stays in the conversation with what there was; where there was nothing, the message stays and
  /// awaits its answer.
  /// Errors: invalid_argument (the prompt does not fit the context), corrupt (NaN logits),
  /// exhausted (the engine has no room; this session has given its own back). The conversation is
  /// then what it was before.
  [[nodiscard]] Result<TurnStats> ask(std::string text, const OnDelta& on_delta,
                                      const ShouldStop& should_stop,
                                      const OnPrefill& on_prefill = {});
  /// Answers the conversation as it stands. Errors as ask().
  [[nodiscard]] Result<TurnStats> answer(const OnDelta& on_delta, const ShouldStop& should_stop,
                                         const OnPrefill& on_prefill = {});
  /// Answers what the last answer answered once more, in its place; the seed moves on by one. Where
  /// nothing comes of it, the old answer stays. Errors: as ask(), and invalid_argument where there
  /// is no answer.
  [[nodiscard]] Result<TurnStats> retry(const OnDelta& on_delta, const ShouldStop& should_stop,
                                        const OnPrefill& on_prefill = {});

  /// Lets the engine make something ready for the next turn, while nobody waits for it: a little at
  /// a time. Whether more may be left. Never throws.
  bool prepare_turn() noexcept;

  /// Adds the result of a tool call of the last answer.
  void add_tool_result(const ToolCall& call, std::string result);
  /// Calls of the last answer that have no result yet.
  std::vector<ToolCall> open_calls() const;

  /// Takes back the last user's message and everything after it. False if there is none.
  bool undo();
  /// Begins anew, with the system message of the options.
  void reset();

  /// Another session that stands where this one does and goes its own way from here on.
  std::unique_ptr<ChatSession> branch() const;
  /// Gives the engine's memory back; the next turn feeds the conversation again.
  void release_state();

  /// The state for a file: the sequence and the newest snapshot. Empty where the engine cannot.
  std::vector<SavedSequence> save_sequences() const;
  /// Begins with the messages of a saved session. Error: as load(); the session is as before.
  [[nodiscard]] Result<void> restore_messages(std::vector<ChatMessage> messages);
  /// Takes the state that belongs to them, the newest first. Error: what the engine says of it, or
  /// corrupt; the next turn then feeds the conversation again.
  [[nodiscard]] Result<void> restore_sequences(std::span<const SavedSequence> sequences);

  /// The system message of this conversation, from the next turn on; empty removes it.
  void set_system(std::string text);
  /// The tools that the model may call, as the JSON text of each function.
  void set_tools(std::vector<std::string> tools);
  /// How the next turns are encoded and sampled.
  void set_encoding(const ChatEncodingOptions& encoding) { options_.encoding = encoding; }
  void set_sampling(SamplingParams sampling) { options_.sampling = std::move(sampling); }

  const ChatSessionOptions& options() const { return options_; }
  const std::vector<ChatMessage>& messages() const { return messages_; }
  /// Whether there is anything but a system message.
  bool begun() const;
  /// The text of the system message; empty where there is none.
  std::string_view system() const;
  /// Tokens that the engine holds of this conversation.
  std::int64_t held_tokens() const;
  /// Tokens that the conversation takes of the context: with what was thought last, and without
  /// what was taken back or what will end the last answer when the next question comes. More than
  /// the context holds where it grew in a larger one.
  std::int64_t context_tokens() const;

 private:
  /// A sequence and what it stands for: the tokens that it holds, and perhaps one more, the newest
  /// of an answer that was cut off, which was never fed.
  struct Held {
    SequenceId sequence{};
    std::vector<TokenId> tokens;
    std::int64_t longest = 0;  ///< the most tokens that it ever held: it rolls back from there
  };

  Result<TurnStats> generate(const OnDelta& on_delta, const ShouldStop& should_stop,
                             const OnPrefill& on_prefill);
  ChatMessage& system_message();
  void drop_empty_system_message();
  void number_calls(std::vector<ToolCall>& calls) const;
  std::size_t said_size(std::span<const TokenId> prompt) const;
  PromptMatch usable(const Held& held, std::span<const TokenId> prompt) const;
  std::size_t prepare(std::span<const TokenId> prompt);
  void keep_snapshot(SequenceId sequence, std::span<const TokenId> tokens);
  Result<Held> restore(const SavedSequence& saved);

  Engine& engine_;
  const Tokenizer& tokenizer_;
  ChatSessionOptions options_;
  std::vector<ChatMessage> messages_;
  std::optional<Held> live_;
  std::deque<Held> snapshots_;  ///< oldest first
  /// context_tokens() after the last answer; nothing where the conversation has changed since.
  std::optional<std::int64_t> context_tokens_;
};

}  // namespace ingot
