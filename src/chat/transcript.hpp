#pragma once

#include <span>
#include <string>
#include <string_view>

#include "src/text/chat_message.hpp"

namespace ingot {

/// A conversation for people: a heading a message, thinking folded away, calls as code.
std::string as_markdown(std::span<const ChatMessage> messages);

/// A conversation for programs: a message a line, in the OpenAI chat format.
std::string as_json_lines(std::span<const ChatMessage> messages);

/// A file as a part of a message: its name, then its text in a fence that it cannot close.
std::string attachment(std::string_view name, std::string_view text);

}  // namespace ingot
