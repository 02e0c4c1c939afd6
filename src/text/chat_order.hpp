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

}  // namespace ingot
