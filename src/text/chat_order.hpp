#pragma once

#include <span>

#include "runtime/base/error.hpp"
#include "src/text/chat_message.hpp"

namespace ingot {

/// "system", "user", … as in the OpenAI chat format.
std::string_view role_name(Role role);

/// Whether a conversation makes sense to the model: the system message first and alone, an
/// assistant only after something to answer, tool results only after calls, and fields only on
/// roles that have them. The official encoder would write such prompts without a word.
/// @param generation_prompt the conversation is to be answered, so its end must be answerable.
/// Error: invalid_argument, "messages[N]: …".
[[nodiscard]] Result<void> check_conversation(std::span<const ChatMessage> messages,
                                              bool generation_prompt);

/// Whether the model has anything to say after a conversation that can be rendered: a finished
/// answer leaves nothing. Error: invalid_argument, "messages[N]: …".
[[nodiscard]] Result<void> check_answerable(std::span<const ChatMessage> messages);

}  // namespace ingot
