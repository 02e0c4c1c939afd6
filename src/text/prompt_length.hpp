#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/error.hpp"
#include "src/text/chat_message.hpp"
#include "src/text/tokenizer.hpp"

namespace ingot {

/// Whether a text of so many bytes may fit the context at all. Asked before it is encoded: its ids
/// could take many times its bytes. Error: invalid_argument, with both numbers and the remedy.
[[nodiscard]] Result<void> check_text_fits(const Tokenizer& tokenizer, std::size_t bytes,
                                           std::int64_t max_context);

/// Bytes that a rendered conversation has at the least: of what users say and of the tools.
std::size_t given_bytes(std::span<const ChatMessage> messages);

/// Whether a prompt leaves room for a token of answer. Error: as above.
[[nodiscard]] Result<void> check_prompt_fits(std::size_t tokens, std::int64_t max_context);

}  // namespace ingot
