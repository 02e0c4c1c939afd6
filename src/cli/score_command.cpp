#include "src/cli/score_command.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <iterator>

#include "src/cli/engine_counts.hpp"
#include "src/cli/model_loader.hpp"
#include "src/cli/read_text_file.hpp"
#include "src/cli/score_vectors.hpp"
#include "src/sampler/log_softmax.hpp"
#include "src/schedule/teacher_forcing.hpp"
#include "src/text/prompt_length.hpp"
#include "src/text/text_check.hpp"

namespace ingot {
namespace {

// Several times the text of the longest context there is.
constexpr std::size_t kMaxTextBytes = std::size_t{16} << 20;

Result<std::vector<TokenId>> parse_token_list(std::string_view list) {
  std::vector<TokenId> tokens;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at <= end) {
    while (at < end && *at == ' ')
      ++at;
    TokenId token = 0;
    const auto [next, error] = std::from_chars(at, end, token);
    if (error != std::errc{} || token < 0) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("--tokens: entry {} is not a token id: give whole numbers from 0 up, "
                              "separated by commas, as 5,6,7",
                              tokens.size() + 1));
    }
    tokens.push_back(token);
    at = next;
    while (at < end && *at == ' ')
      ++at;
    if (at == end) return tokens;
    if (*at != ',') {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("--tokens: a comma is missing after entry {}: give ids as 5,6,7",
                              tokens.size()));
    }
    ++at;
  }
  return fail(ErrorCode::invalid_argument, "--tokens: the list is empty: give ids as 5,6,7");
}

// JSON has no -inf: a token that cannot be is null.
std::string json_number(float value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

/// Sums up the log-probabilities of the tokens that were given.
class Perplexity {
 public:
  void add(float logprob) {
    sum_ += logprob;
    ++count_;
  }
  std::int64_t count() const { return count_; }
  /// NaN where nothing was scored.
  double mean_nll() const { return -sum_ / static_cast<double>(count_); }
  double perplexity() const { return std::exp(mean_nll()); }

 private:
  double sum_ = 0;
  std::int64_t count_ = 0;
};

void add_json_position(std::string& out, const ScoredPosition& position, bool first) {
  out += first ? "{\"top\": [" : ", {\"top\": [";
  bool comma = false;
  for (const TokenLogprob& entry : position.top) {
    out += fmt::format("{}[{}, {}, {}]", comma ? ", " : "", entry.id, json_number(entry.logit),
                       json_number(entry.logprob));
    comma = true;
  }
  out += fmt::format("], \"next\": {}}}", position.next ? json_number(*position.next) : "null");
}

void print_table_position(std::int64_t index, TokenId token, const ScoredPosition& position) {
  fmt::print("{:>8} {:>8} {:>12}  ", index, token,
             position.next ? fmt::format("{:.5f}", *position.next) : "-");
  for (const TokenLogprob& entry : position.top)
    fmt::print(" {}:{:.4f}", entry.id, entry.logprob);
  fmt::print("\n");
}

Result<std::vector<TokenId>> tokens_of_text(const OpenedModel& model, const ScoreOptions& options) {
  std::string text;
  if (options.text) {
    text = *options.text;
  } else {
    auto read = read_text_file(options.input, kMaxTextBytes);
    if (!read) return Unexpected(read.error());
    text = std::move(*read);
  }
  if (auto fits = check_text_fits(*model.tokenizer, text.size(), model.max_context); !fits) {
    return Unexpected(fits.error());
  }
  TextFaults faults;
  faults.add(text, 0);
  warn_of_faults(options.text ? "the text" : options.input.string(), faults);
  std::vector<TokenId> tokens;
  if (options.bos) tokens.push_back(model.config().bos_token_id);
  model.tokenizer->encode(text, AddedTokens::as_text, tokens);
  return tokens;
}

int score_tokens(const LoadedModel& model, const std::vector<TokenId>& tokens,
                 const ScoreOptions& options) {
  const bool list_positions = options.positions;
  Perplexity sum;
  std::int64_t index = 0;
  std::string positions;  // printed when all are there: half an object is none
  if (!options.json && list_positions) {
    fmt::print("{:>8} {:>8} {:>12}   likeliest next tokens (id:logprob)\n", "position", "token",
               "next logprob");
  }
  score_sequence(*model.engine, tokens, list_positions ? options.top : 0,
                 [&](const ScoredPosition& position) {
                   if (position.next) sum.add(*position.next);
                   if (list_positions && options.json) {
                     add_json_position(positions, position, index == 0);
                   }
                   if (list_positions && !options.json) {
                     print_table_position(index, tokens[static_cast<std::size_t>(index)], position);
                   }
                   ++index;
                 });
  if (options.json) {
    const auto number = [](double value) {
      return std::isfinite(value) ? fmt::format("{}", value) : std::string("null");
    };
    fmt::print("{{{}\"tokens\": {}, \"scored\": {}, \"mean_nll\": {}, \"perplexity\": {}}}\n",
               list_positions ? fmt::format("\"positions\": [{}], ", positions) : "", tokens.size(),
               sum.count(), number(sum.mean_nll()), number(sum.perplexity()));
  } else if (sum.count() == 0) {
    fmt::print("{} token, 0 scored: nothing follows it, so there is no perplexity\n",
               tokens.size());
  } else {
    fmt::print("{} tokens, {} scored: mean negative log-likelihood {:.6f}, perplexity {:.4f}\n",
               tokens.size(), sum.count(), sum.mean_nll(), sum.perplexity());
  }
  return 0;
}

}  // namespace

int run_score(const ScoreOptions& options) {
  std::vector<TokenId> tokens;
  if (options.tokens) tokens = value_or_throw(parse_token_list(*options.tokens));
  if (!options.input.empty()) {
    value_or_throw(check_text_file(options.input, kMaxTextBytes));
  }
  if (!options.vectors.empty()) {
    value_or_throw(check_text_file(options.vectors / "manifest.json", kMaxTextBytes));
  }
  const bool needs_text = !options.tokens;
  OpenedModel opened = value_or_throw(open_model(
      options.settings, options.environment, needs_text ? WithTokenizer::yes : WithTokenizer::no));
  // All that is wrong with the input is said before the weights are read.
  if (!options.vectors.empty()) {
    const std::vector<CapturedVector> vectors =
        value_or_throw(read_vectors(options.vectors, *opened.tokenizer, opened.efforts,
                                    opened.config().vocab_size, opened.max_context));
    LoadedModel model =
        value_or_throw(load_weights(std::move(opened), options.settings, options.environment));
    const int status =
        score_vectors(*model.engine, *model.tokenizer, vectors, options.json, stdout);
    if (options.stats) print_engine_counts(*model.engine);
    return status;
  }
  if (needs_text) tokens = value_or_throw(tokens_of_text(opened, options));
  value_or_throw(check_scorable(opened.config().vocab_size, opened.max_context, tokens));
  const LoadedModel model =
      value_or_throw(load_weights(std::move(opened), options.settings, options.environment));
  const int status = score_tokens(model, tokens, options);
  if (options.stats) print_engine_counts(*model.engine);
  return status;
}

}  // namespace ingot
