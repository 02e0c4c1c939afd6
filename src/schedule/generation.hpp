#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "src/engine/engine.hpp"
#include "src/sampler/sampler.hpp"
#include "src/schedule/output_text.hpp"
#include "src/text/chat_message.hpp"
#include "src/text/tokenizer.hpp"

namespace ingot {

/// Why an answer ended, by the words of OpenAI's API, and two of ours.
enum class FinishReason { stop, length, tool_calls, cancelled, error };
std::string_view finish_reason_name(FinishReason reason);

/// What one answer is made from.
struct GenerationRequest {
  std::string name;             ///< for messages: "line 7", "this turn"
  std::vector<TokenId> prompt;  ///< at least one token
  bool thinking = false;        ///< the prompt ends in <think>
  bool plain = false;           ///< no chat: all that comes is text
  SamplingParams sampling;      ///< validated
};

/// Ids that end or steer every answer of a model.
struct ControlTokens {
  TokenId eos = 0;
  std::optional<TokenId> user;       ///< <｜User｜>: a model that runs on is stopped there
  std::optional<TokenId> think_end;  ///< </think>

  static ControlTokens find(const Tokenizer& tokenizer, TokenId eos);
};

/// One answer, whole. Token counts are the API's: prompt, and completion without the token that
/// ended it; thinking tokens, and `</think>` behind them, are a part of the completion.
struct GenerationResult {
  FinishReason finish_reason = FinishReason::stop;
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> tool_calls;
  std::vector<TokenId> tokens;         ///< generated, without the token that ended the answer
  std::optional<TokenId> end_token;    ///< that token, where one did
  std::vector<SampledToken> logprobs;  ///< one for each of `tokens`, if they were asked for
  std::int64_t prompt_tokens = 0;
  std::int64_t thinking_tokens = 0;  ///< the first of `tokens`; never more than the budget
  bool thinking_ended = false;       ///< the next one is `</think>`
  std::optional<Error> error;        ///< with FinishReason::error

  /// Of `tokens`, the first that is the answer's own.
  std::int64_t answer_begin() const { return thinking_tokens + (thinking_ended ? 1 : 0); }
};

/// The state of one answer between steps: from what follows its newest token it makes the next
/// token, and then the text that this releases: the second can wait until the step that the token
/// goes into is under way. Knows no engine and no neighbours. One thread at a time.
class Generation {
 public:
  /// @param limit tokens that fit behind the prompt; at least 1. Smaller than max_tokens: clips it.
  Generation(GenerationRequest request, const Tokenizer& tokenizer, const ControlTokens& control,
             std::int64_t limit);

  const GenerationRequest& request() const { return request_; }
  const GenerationResult& result() const { return result_; }
  GenerationResult take_result() { return std::move(result_); }
  /// No further token is wanted: the newest one, or their number, ended the answer. What the text
  /// says is known after tell().
  bool ended() const { return done_ || end_reason_.has_value(); }
  /// The answer is whole, its text too.
  bool done() const { return done_; }

  /// How the next token may be chosen by somebody else; nullopt where it is not chosen at all, as
  /// the budget for thinking is spent. Valid until the next take().
  std::optional<SampleRequest> sample_request() const;
  /// Takes the logits that follow prompt and answer so far, or what was chosen from them by
  /// sample_request(); the token before it was told. Afterwards either ended(), or newest() is the
  /// token to feed.
  void take(std::span<const float> logits, Sampler& sampler);
  void take(Result<SampledToken> sampled);
  TokenId newest() const { return result_.tokens.back(); }
  /// Whether sample_request() has to know what the token that was taken says.
  bool must_tell_first() const;
  /// The text that the token releases that was taken; a stop string in it ends the answer.
  OutputDelta tell();

  /// Ends the answer from outside; what was held back is released.
  OutputDelta cancel();
  void fail_with(Error error);

 private:
  void add(OutputDelta& delta, OutputDelta more);
  void end(FinishReason reason, OutputDelta& delta);
  bool is_stop(TokenId token) const;
  bool must_close_thinking() const;
  std::int64_t position() const {
    return result_.prompt_tokens + static_cast<std::int64_t>(result_.tokens.size());
  }

  GenerationRequest request_;
  ControlTokens control_;
  std::int64_t max_tokens_;
  OutputText text_;
  TokenHistory history_;
  GenerationResult result_;
  bool untold_ = false;                     ///< the newest token's text is not released yet
  std::optional<FinishReason> end_reason_;  ///< by tokens alone
  bool done_ = false;
};

}  // namespace ingot
