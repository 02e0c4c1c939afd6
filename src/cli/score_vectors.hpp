#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "src/engine/engine.hpp"
#include "src/text/chat_encoding.hpp"
#include "src/text/tokenizer.hpp"

namespace ingot {

/// A token as the API captured it.
struct CapturedAlternative {
  std::string bytes;
  double logprob = 0;
};

struct CapturedStep {
  CapturedAlternative chosen;
  std::vector<CapturedAlternative> top;
};

/// A captured greedy continuation of the official API, ready to be fed.
struct CapturedVector {
  std::string id;
  std::int64_t official_prompt_tokens = 0;  ///< as the API counted them
  std::int64_t prompt_tokens = 0;           ///< as we do
  std::vector<TokenId> tokens;              ///< of the prompt and of the API's own steps
  std::vector<CapturedStep> steps;          ///< at least one
};

/// Reads a folder of vectors (manifest.json, NAME.official.json) before the model is loaded.
/// Errors: not_found, corrupt, invalid_argument (too long for the context); the message names the
/// file. Throws EngineError for a file that cannot be read or is no JSON.
[[nodiscard]] Result<std::vector<CapturedVector>> read_vectors(
    const std::filesystem::path& directory, const Tokenizer& tokenizer, EffortTable efforts,
    int vocab_size, std::int64_t max_context);

/// `ingot score --vectors DIR`: captured continuations against this engine. For each vector:
/// whether the prompt has the API's token count, at how many steps the greedy token is the API's,
/// and the greatest difference of a log-probability that the API gave. Prints a table or one JSON
/// object on `out`. Returns 0 if every greedy token agrees, else 1.
int score_vectors(Engine& engine, const Tokenizer& tokenizer,
                  std::span<const CapturedVector> vectors, bool json, std::FILE* out);

}  // namespace ingot
