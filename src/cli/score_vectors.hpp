#pragma once

#include <filesystem>

#include "src/engine/engine.hpp"
#include "src/text/chat_encoding.hpp"
#include "src/text/tokenizer.hpp"

namespace ingot {

/// `ingot score --vectors DIR`: captured greedy continuations of the official API (manifest.json,
/// NAME.txt, NAME.official.json) against this engine. For each vector: whether the prompt has the
/// API's token count, at how many steps the greedy token is the API's, and the greatest difference
/// of a log-probability that the API gave. Prints a table or one JSON object.
/// Returns 0 if every greedy token agrees, else 1. Throws EngineError for a broken folder.
int score_vectors(Engine& engine, const Tokenizer& tokenizer, EffortTable efforts,
                  const std::filesystem::path& directory, bool json);

}  // namespace ingot
