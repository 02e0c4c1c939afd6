#include "src/cli/score_vectors.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "src/cli/read_text_file.hpp"
#include "src/schedule/teacher_forcing.hpp"

namespace ingot {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;
// The API writes -9999 for alternatives whose probability it does not give.
constexpr double kLowestRealLogprob = -1000;

struct Alternative {
  std::string bytes;
  double logprob = 0;
};

struct Step {
  Alternative chosen;
  std::vector<Alternative> top;
};

struct Vector {
  std::string id;
  std::vector<ChatMessage> messages;
  Thinking thinking = Thinking::none;
  std::int64_t prompt_tokens = 0;  ///< as the API counted them
  std::vector<Step> steps;
};

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
  json value = json::parse(text, nullptr, false);
  if (value.is_discarded()) {
    throw EngineError(ErrorCode::corrupt, fmt::format("reading {}: not JSON", file.string()));
  }
  return value;
}

/// The file as the manifest names it, or its last part beside the manifest.
fs::path find_file(const fs::path& directory, const std::string& name) {
  const fs::path named = directory / name;
  std::error_code error;
  return fs::exists(named, error) ? named : directory / fs::path(name).filename();
}

Alternative read_alternative(const json& entry) {
  Alternative out;
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

Vector read_vector(const fs::path& directory, const json& entry) {
  Vector vector;
  vector.id = entry.at("id").get<std::string>();
  const fs::path file = find_file(directory, entry.at("official_file").get<std::string>());
  const json official = read_json(file);
  const json& request = official.at("request");
  vector.messages =
      value_or_throw(parse_chat_messages(request.at("messages").dump(), file.string()));
  const auto thinking = request.find("thinking");
  if (thinking == request.end() || thinking->at("type") != "disabled") {
    vector.thinking = Thinking::high;
  }
  vector.prompt_tokens = official.at("usage").at("prompt_tokens").get<std::int64_t>();
  for (const json& step : official.at("steps")) {
    Step read{read_alternative(step), {}};
    for (const json& top : step.at("top_logprobs"))
      read.top.push_back(read_alternative(top));
    vector.steps.push_back(std::move(read));
  }
  return vector;
}

std::vector<Vector> read_vectors(const fs::path& directory) {
  const fs::path manifest = directory / "manifest.json";
  const json list = read_json(manifest);
  try {
    std::vector<Vector> vectors;
    for (const json& entry : list.at("prompts"))
      vectors.push_back(read_vector(directory, entry));
    return vectors;
  } catch (const json::exception& error) {
    throw EngineError(ErrorCode::corrupt, fmt::format("reading the vectors of {}: {}",
                                                      manifest.string(), error.what()));
  }
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

void compare_step(const Step& step, const TokenOfBytes& index, std::span<const float> logits,
                  Comparison& result) {
  const double log_sum = log_sum_exp(logits);
  const auto greedy = top_logprobs(logits, log_sum, 1);
  const auto wanted = index.find(step.chosen.bytes);
  ++result.steps;
  result.agreed += wanted != index.end() && wanted->second == greedy.at(0).id;
  for (const Alternative& alternative : step.top) {
    const auto id = index.find(alternative.bytes);
    if (id == index.end() || alternative.logprob < kLowestRealLogprob) continue;
    const double ours = logits[static_cast<std::size_t>(id->second)] - log_sum;
    result.max_difference =
        std::max(result.max_difference.value_or(0), std::abs(ours - alternative.logprob));
  }
}

/// The prompt and the API's own tokens are fed, so a step that disagrees does not spoil the next.
Comparison compare(Engine& engine, const Tokenizer& tokenizer, const TokenOfBytes& index,
                   EffortTable efforts, const Vector& vector) {
  ChatEncodingOptions encoding;
  encoding.thinking = vector.thinking;
  encoding.efforts = efforts;
  const Prompt prompt = value_or_throw(render_chat(vector.messages, encoding));
  std::vector<TokenId> tokens = encode_prompt(tokenizer, prompt);
  Comparison result{vector.id, static_cast<std::int64_t>(tokens.size()), false, 0, 0, {}};
  result.same_prompt = result.prompt_tokens == vector.prompt_tokens;
  const std::size_t first = tokens.size() - 1;
  for (const Step& step : vector.steps) {
    const auto id = index.find(step.chosen.bytes);
    if (id == index.end()) {
      throw EngineError(ErrorCode::corrupt,
                        fmt::format("vector {}: the tokenizer has no token for \"{}\"", vector.id,
                                    step.chosen.bytes));
    }
    tokens.push_back(id->second);
  }
  value_or_throw(check_scorable(engine, tokens));
  for_each_logits(engine, tokens, [&](std::size_t position, std::span<const float> logits) {
    if (position < first || position - first >= vector.steps.size()) return;
    compare_step(vector.steps[position - first], index, logits, result);
  });
  return result;
}

void print_table(const std::vector<Comparison>& results) {
  fmt::print("{:<28} {:>8} {:>7} {:>12} {:>20}\n", "vector", "prompt", "count", "greedy",
             "max |logprob diff|");
  for (const Comparison& result : results) {
    fmt::print("{:<28} {:>8} {:>7} {:>12} {:>20}\n", result.id, result.prompt_tokens,
               result.same_prompt ? "same" : "OTHER",
               fmt::format("{} of {}", result.agreed, result.steps),
               result.max_difference ? fmt::format("{:.5f}", *result.max_difference) : "-");
  }
}

void print_json(const std::vector<Comparison>& results, bool all_agree) {
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
  fmt::print("{}\n", nlohmann::ordered_json{{"vectors", list}, {"all_agree", all_agree}}.dump());
}

}  // namespace

int score_vectors(Engine& engine, const Tokenizer& tokenizer, EffortTable efforts,
                  const fs::path& directory, bool json_output) {
  const std::vector<Vector> vectors = read_vectors(directory);
  const TokenOfBytes index = index_vocabulary(tokenizer);
  std::vector<Comparison> results;
  for (const Vector& vector : vectors) {
    results.push_back(compare(engine, tokenizer, index, efforts, vector));
  }
  const auto agreed = std::count_if(results.begin(), results.end(), [](const Comparison& result) {
    return result.agreed == result.steps && result.same_prompt;
  });
  const bool all_agree = agreed == static_cast<std::ptrdiff_t>(results.size());
  if (json_output) {
    print_json(results, all_agree);
  } else {
    print_table(results);
    fmt::print("{} of {} vectors agree at every step\n", agreed, results.size());
  }
  return all_agree ? 0 : 1;
}

}  // namespace ingot
