#include "src/cli/score_vectors.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "runtime/base/printable.hpp"
#include "src/checkpoint/problems.hpp"
#include "src/checkpoint/strict_json.hpp"
#include "src/cli/json_line.hpp"
#include "src/cli/read_text_file.hpp"
#include "src/schedule/teacher_forcing.hpp"

namespace ingot {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::size_t kMaxFileBytes = std::size_t{16} << 20;
// The API writes -9999 for alternatives whose probability it does not give.
constexpr double kLowestRealLogprob = -1000;

struct Comparison {
  std::string id;
  std::int64_t prompt_tokens = 0;
  bool same_prompt = false;
  int steps = 0;
  int agreed = 0;
  std::optional<double> max_difference;
};

json read_json(const fs::path& file) {
  const std::string text = value_or_throw(read_text_file(file, kMaxFileBytes));
  return value_or_throw(parse_strict_json(text, file.string()));
}

/// The file as the manifest names it, or its last part beside the manifest.
fs::path find_file(const fs::path& directory, const std::string& name) {
  const fs::path named = directory / name;
  std::error_code error;
  return fs::exists(named, error) ? named : directory / fs::path(name).filename();
}

CapturedAlternative read_alternative(const json& entry) {
  CapturedAlternative out;
  const json& token = entry.at("token");
  if (const auto bytes = token.find("bytes"); bytes != token.end() && bytes->is_array()) {
    for (const json& byte : *bytes)
      out.bytes += static_cast<char>(byte.get<int>());
  } else {
    out.bytes = token.at("text").get<std::string>();
  }
  out.logprob = entry.at("logprob").get<double>();
  return out;
}

using TokenOfBytes = std::unordered_map<std::string_view, TokenId>;

TokenOfBytes index_vocabulary(const Tokenizer& tokenizer) {
  TokenOfBytes index;
  for (TokenId id = 0; id < tokenizer.size(); ++id) {
    const std::string_view bytes = tokenizer.bytes(id);
    if (!bytes.empty()) index.emplace(bytes, id);
  }
  return index;
}

Unexpected not_captured(const fs::path& file, std::string_view why) {
  return fail(ErrorCode::corrupt,
              fmt::format("reading the vectors of {}: {}; capture them again", file.string(), why));
}

Error about(const fs::path& file, Error error) {
  error.message = fmt::format("reading the vectors of {}: {}", file.string(), error.message);
  return error;
}

/// What reads vectors, and what they must fit.
struct VectorReader {
  const fs::path& directory;
  const Tokenizer& tokenizer;
  EffortTable efforts;
  int vocab_size;
  std::int64_t max_context;
  TokenOfBytes index = index_vocabulary(tokenizer);

  Result<CapturedVector> read(const std::string& id, const fs::path& file) const;
};

Result<CapturedVector> VectorReader::read(const std::string& id, const fs::path& file) const {
  CapturedVector vector;
  vector.id = id;
  const json official = read_json(file);
  const json& request = official.at("request");
  auto messages = parse_chat_messages(request.at("messages").dump(), file.string());
  if (!messages) return Unexpected(messages.error());
  ChatEncodingOptions encoding;
  encoding.efforts = efforts;
  const auto thinking = request.find("thinking");
  if (thinking == request.end() || thinking->at("type") != "disabled") {
    encoding.thinking = Thinking::high;
  }
  const auto prompt = render_chat(*messages, encoding);
  if (!prompt) return Unexpected(about(file, prompt.error()));
  vector.tokens = encode_prompt(tokenizer, *prompt);
  vector.prompt_tokens = static_cast<std::int64_t>(vector.tokens.size());
  vector.official_prompt_tokens = official.at("usage").at("prompt_tokens").get<std::int64_t>();
  for (const json& step : official.at("steps")) {
    CapturedStep read{read_alternative(step), {}};
    for (const json& top : step.at("top_logprobs"))
      read.top.push_back(read_alternative(top));
    const auto token = index.find(read.chosen.bytes);
    if (token == index.end()) {
      return not_captured(
          file, fmt::format("the tokenizer has no token for {}", in_quotes(read.chosen.bytes)));
    }
    vector.tokens.push_back(token->second);
    vector.steps.push_back(std::move(read));
  }
  if (vector.steps.empty()) return not_captured(file, "it holds no steps");
  if (auto fits = check_scorable(vocab_size, max_context, vector.tokens); !fits) {
    return Unexpected(about(file, fits.error()));
  }
  return vector;
}

void compare_step(const CapturedStep& step, const TokenOfBytes& index,
                  std::span<const float> logits, Comparison& result) {
  const double log_sum = log_sum_exp(logits);
  const auto greedy = top_logprobs(logits, log_sum, 1);
  const auto wanted = index.find(step.chosen.bytes);
  ++result.steps;
  result.agreed += wanted != index.end() && wanted->second == greedy.at(0).id;
  for (const CapturedAlternative& alternative : step.top) {
    const auto id = index.find(alternative.bytes);
    if (id == index.end() || alternative.logprob < kLowestRealLogprob) continue;
    const double ours = logits[static_cast<std::size_t>(id->second)] - log_sum;
    result.max_difference =
        std::max(result.max_difference.value_or(0), std::abs(ours - alternative.logprob));
  }
}

/// The prompt and the API's own tokens are fed, so a step that disagrees does not spoil the next.
Comparison compare(Engine& engine, const TokenOfBytes& index, const CapturedVector& vector) {
  Comparison result{vector.id, vector.prompt_tokens, false, 0, 0, {}};
  result.same_prompt = vector.prompt_tokens == vector.official_prompt_tokens;
  const auto first = static_cast<std::size_t>(vector.prompt_tokens) - 1;
  for_each_logits(engine, vector.tokens, [&](std::size_t at, std::span<const float> logits) {
    if (at < first || at - first >= vector.steps.size()) return;
    compare_step(vector.steps[at - first], index, logits, result);
  });
  return result;
}

void print_table(std::FILE* out, const std::vector<Comparison>& results) {
  fmt::print(out, "{:<28} {:>8} {:>7} {:>12} {:>20}\n", "vector", "prompt", "count", "greedy",
             "max |logprob diff|");
  for (const Comparison& result : results) {
    fmt::print(out, "{:<28} {:>8} {:>7} {:>12} {:>20}\n", printable(result.id),
               result.prompt_tokens, result.same_prompt ? "same" : "OTHER",
               fmt::format("{} of {}", result.agreed, result.steps),
               result.max_difference ? fmt::format("{:.5f}", *result.max_difference) : "-");
  }
}

void print_json(std::FILE* out, const std::vector<Comparison>& results, bool all_agree) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Comparison& result : results) {
    nlohmann::ordered_json entry;
    entry["id"] = result.id;
    entry["prompt_tokens"] = result.prompt_tokens;
    entry["same_prompt_tokens"] = result.same_prompt;
    entry["steps"] = result.steps;
    entry["greedy_agree"] = result.agreed;
    entry["max_logprob_difference"] = nullptr;
    if (result.max_difference) entry["max_logprob_difference"] = *result.max_difference;
    list.push_back(std::move(entry));
  }
  fmt::print(out, "{}\n", json_line({{"vectors", list}, {"all_agree", all_agree}}));
}

}  // namespace

Result<std::vector<CapturedVector>> read_vectors(const fs::path& directory,
                                                 const Tokenizer& tokenizer, EffortTable efforts,
                                                 int vocab_size, std::int64_t max_context) {
  const VectorReader reader{directory, tokenizer, efforts, vocab_size, max_context};
  const fs::path manifest = directory / "manifest.json";
  fs::path file = manifest;  // the one that is being read
  std::vector<CapturedVector> vectors;
  try {
    const json list = read_json(manifest);
    for (const json& entry : list.at("prompts")) {
      const auto id = entry.at("id").get<std::string>();
      file = find_file(directory, entry.at("official_file").get<std::string>());
      auto vector = reader.read(id, file);
      if (!vector) return Unexpected(vector.error());
      vectors.push_back(std::move(*vector));
      file = manifest;
    }
  } catch (const json::exception& error) {
    return not_captured(file, json_error_text(error.what()));
  }
  if (vectors.empty()) return not_captured(manifest, "it names no prompts");
  return vectors;
}

int score_vectors(Engine& engine, const Tokenizer& tokenizer,
                  std::span<const CapturedVector> vectors, bool json_output, std::FILE* out) {
  const TokenOfBytes index = index_vocabulary(tokenizer);
  std::vector<Comparison> results;
  for (const CapturedVector& vector : vectors)
    results.push_back(compare(engine, index, vector));
  const auto agreed = std::count_if(results.begin(), results.end(), [](const Comparison& result) {
    return result.agreed == result.steps && result.same_prompt;
  });
  const bool all_agree = agreed == static_cast<std::ptrdiff_t>(results.size());
  if (json_output) {
    print_json(out, results, all_agree);
  } else {
    print_table(out, results);
    fmt::print(out, "{} of {} vectors agree at every step\n", agreed, results.size());
  }
  return all_agree ? 0 : 1;
}

}  // namespace ingot
