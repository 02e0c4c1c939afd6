#pragma once

#include <string>

#include "src/text/chat_message.hpp"

namespace ingot {

/// A message as one JSON object in the OpenAI chat format, on one line: parse_chat_messages() makes
/// an equal message of it.
std::string chat_message_json(const ChatMessage& message);

/// One call as it stands in such a message's `tool_calls`.
std::string tool_call_json(const ToolCall& call);

}  // namespace ingot
