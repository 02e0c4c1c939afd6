#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "src/text/chat_message.hpp"
#include "src/text/effort.hpp"
#include "src/text/tokenizer.hpp"
#include "src/token.hpp"

namespace ingot {

struct JsonValue;

struct ChatEncodingOptions {
  Thinking thinking = Thinking::none;
  EffortTable efforts = EffortTable::april;
  bool keep_thinking = false;     ///< keep the reasoning of earlier turns (drop_thinking = false)
  bool allow_special = false;     ///< text of messages may spell control tokens
  bool generation_prompt = true;  ///< end with <｜Assistant｜> and <think> or </think>
};

/// A run of the prompt: ours (control tokens are recognised in it) or a message's (they are not).
struct PromptPiece {
  std::string text;
  bool is_control = false;
};

/// A conversation as the model reads it.
struct Prompt {
  std::vector<PromptPiece> pieces;

  std::string text() const;
  std::size_t bytes() const;
};

/// Renders a conversation. Source: model specification 6.2; byte-equal to the official encoder.
/// Errors: invalid_argument (roles out of order, an effort that the table lacks, by name), with the
/// message's index.
[[nodiscard]] Result<Prompt> render_chat(std::span<const ChatMessage> messages,
                                         const ChatEncodingOptions& options);

/// Ids of a rendered prompt: control tokens where we wrote them, ordinary pieces elsewhere.
std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, const Prompt& prompt,
                                   bool allow_special = false);

/// Reads messages in the OpenAI chat format: a JSON array, or an object with `messages` and
/// optionally `tools` and `response_format`, which go to the first message (an empty system message
/// is put in front if that is a user's). Other keys of the object are the caller's affair; a
/// message's unknown field is an error. `wo_eos` (or `prefix`), `task`, `tools`, `response_format`
/// and `reasoning_content` (or `reasoning`) of a message are read as the official encoder does.
/// Roles out of order are refused here already, with the index that the caller knows.
/// Errors: corrupt, invalid_argument, unsupported (a part that is not text); the message names the
/// message's index and field.
[[nodiscard]] Result<std::vector<ChatMessage>> parse_chat_messages(std::string_view json,
                                                                   std::string_view origin);
/// The same of a document that was read before; its texts move into the messages.
[[nodiscard]] Result<std::vector<ChatMessage>> take_chat_messages(JsonValue document,
                                                                  std::string_view origin);

/// Reads tools as a request gives them: an array of {"type": "function", "function": {"name": …}},
/// or an object with such a list as its `tools`. Each as the JSON text of its `function`. Errors:
/// corrupt, invalid_argument, unsupported.
[[nodiscard]] Result<std::vector<std::string>> parse_chat_tools(std::string_view json,
                                                                std::string_view origin);

/// The longest file of messages that is read: the longest context in the longest spelling of JSON.
inline constexpr std::size_t kMaxMessagesBytes = std::size_t{16} << 20;

}  // namespace ingot
