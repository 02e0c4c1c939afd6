#pragma once

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

#include "src/text/chat_message.hpp"

namespace ingot {

struct TokensOptions {
  std::filesystem::path model;      ///< --model: a checkpoint, or any folder with a tokenizer.json
  std::optional<std::string> text;  ///< --text
  std::filesystem::path messages;   ///< --messages: a JSON file of chat messages
  std::filesystem::path input;      ///< --input: a text file
  Thinking thinking = Thinking::none;  ///< --thinking: how much; of messages only
  bool keep_thinking = false;          ///< --keep-thinking: of earlier turns; of messages only
  bool allow_special = false;          ///< --allow-special: given text may spell control tokens
  bool json = false;
};

/// `ingot tokens`: the ids of a text, or the rendered prompt and ids of a conversation, as a table
/// of ids and pieces or as one JSON object {"prompt": …, "ids": […]} on `out`. Exactly one of text,
/// messages and input is given. Loads no weights. Returns the exit status. Throws EngineError.
int run_tokens(const TokensOptions& options, std::FILE* out);

}  // namespace ingot
