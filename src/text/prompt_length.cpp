#include "src/text/prompt_length.hpp"

#include <fmt/core.h>

namespace ingot {

Result<void> check_text_fits(const Tokenizer& tokenizer, std::size_t bytes,
                             std::int64_t max_context) {
  const auto least_tokens = static_cast<std::int64_t>(bytes / tokenizer.longest_token_bytes());
  if (least_tokens <= max_context) return {};
  return fail(ErrorCode::invalid_argument,
              fmt::format("the prompt has {} bytes, which are at least {} tokens, but the context "
                          "holds {}: shorten it, or raise --context",
                          bytes, least_tokens, max_context));
}

std::size_t given_bytes(std::span<const ChatMessage> messages) {
  std::size_t bytes = 0;
  for (const ChatMessage& message : messages) {
    if (message.role == Role::user) bytes += message.content.size();
    for (const std::string& tool : message.tools)
      bytes += tool.size();
  }
  return bytes;
}

Result<void> check_prompt_fits(std::size_t tokens, std::int64_t max_context) {
  if (static_cast<std::int64_t>(tokens) < max_context) return {};
  return fail(ErrorCode::invalid_argument,
              fmt::format("the prompt has {} tokens, but the context holds {}, the answer "
                          "included: shorten it, or raise --context",
                          tokens, max_context));
}

}  // namespace ingot
