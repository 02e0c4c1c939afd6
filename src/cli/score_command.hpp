#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "src/cli/environment.hpp"
#include "src/cli/settings.hpp"

namespace ingot {

struct ScoreOptions {
  Settings settings;
  Environment environment;
  std::optional<std::string> tokens;  ///< --tokens 5,6,7
  std::optional<std::string> text;    ///< --text
  std::filesystem::path input;        ///< --input: a text file
  std::filesystem::path vectors;      ///< --vectors: captured continuations of the official API
  int top = 5;
  bool positions = false;  ///< every position is listed, not the sum alone
  bool bos = true;         ///< texts are scored after the model's begin-of-sentence token
  bool json = false;
  bool stats = false;  ///< at the end a line of JSON on standard error: engine counts
};

/// `ingot score`: teacher-forced log-probabilities of a token list or a text; perplexity; or the
/// comparison with captured continuations. Returns the exit status. Throws EngineError.
int run_score(const ScoreOptions& options);

}  // namespace ingot
