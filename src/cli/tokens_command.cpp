#include "src/cli/tokens_command.hpp"

#include <fmt/format.h>

#include "runtime/base/error.hpp"
#include "runtime/base/log.hpp"
#include "src/checkpoint/model_config.hpp"
#include "src/cli/model_loader.hpp"
#include "src/cli/read_text_file.hpp"
#include "src/text/chat_encoding.hpp"
#include "src/text/json_value.hpp"
#include "src/text/tokenizer.hpp"
#include "src/text/utf8.hpp"

namespace ingot {
namespace {

constexpr std::size_t kMaxInputBytes = std::size_t{1} << 30;

/// Which efforts the model beside the tokenizer has. A folder with a tokenizer alone will do.
EffortTable efforts_beside(const std::filesystem::path& model) {
  const std::filesystem::path config = model / "config.json";
  std::error_code error;
  if (!std::filesystem::exists(config, error)) {
    log::info("{} has no config.json: the thinking efforts of the April checkpoint are used",
              model.string());
    return EffortTable::april;
  }
  return effort_table(value_or_throw(read_model_config(config)));
}

/// What was asked for, and its ids.
struct Encoded {
  std::string prompt;
  std::vector<TokenId> ids;
};

/// The text, or the prompt that the messages make: all that can be wrong with the input.
Prompt read_input(const TokensOptions& options) {
  if (options.messages.empty()) {
    std::string text = options.text ? *options.text
                                    : value_or_throw(read_text_file(options.input, kMaxInputBytes));
    return {{{std::move(text), false}}};
  }
  std::vector<ChatMessage> messages;
  {
    const std::string json = value_or_throw(read_text_file(options.messages, kMaxMessagesBytes));
    messages = value_or_throw(parse_chat_messages(json, options.messages.string()));
  }
  ChatEncodingOptions encoding;
  encoding.thinking = options.thinking;
  encoding.efforts = efforts_beside(options.model);
  encoding.keep_thinking = options.keep_thinking;
  return value_or_throw(render_chat(messages, encoding));
}

Encoded encode_messages(const Tokenizer& tokenizer, const TokensOptions& options,
                        const Prompt& prompt) {
  return {prompt.text(), encode_prompt(tokenizer, prompt, options.allow_special)};
}

Encoded encode_text(const Tokenizer& tokenizer, const TokensOptions& options,
                    const std::string& text) {
  const AddedTokens added = options.allow_special ? AddedTokens::recognise : AddedTokens::as_text;
  std::string mended;
  return {std::string(mend_utf8(text, mended)), tokenizer.encode(text, added)};
}

/// A token's bytes on one line; those that are no character of their own as \xNN.
std::string piece_text(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const std::size_t valid = valid_utf8_prefix(bytes);
    const std::string quoted = to_python_json(bytes.substr(0, valid));
    out.append(quoted, 1, quoted.size() - 2);
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    out += fmt::format("\\x{:02X}", static_cast<unsigned char>(bytes[0]));
    bytes.remove_prefix(1);
  }
  return out;
}

void print_table(const Tokenizer& tokenizer, const Encoded& encoded, std::FILE* out) {
  for (const TokenId id : encoded.ids) {
    fmt::print(out, "{:>6}  \"{}\"{}\n", id, piece_text(tokenizer.bytes(id)),
               tokenizer.is_added(id) ? "  control" : "");
  }
  fmt::print(out, "{} token{}\n", encoded.ids.size(), encoded.ids.size() == 1 ? "" : "s");
}

void print_json(const Encoded& encoded, std::FILE* out) {
  fmt::print(out, "{{\"prompt\": {}, \"ids\": [{}]}}\n", to_python_json(encoded.prompt),
             fmt::join(encoded.ids, ", "));
}

void check_options(const TokensOptions& options) {
  const int sources =
      (options.text ? 1 : 0) + (options.messages.empty() ? 0 : 1) + (options.input.empty() ? 0 : 1);
  if (sources != 1) {
    throw EngineError(ErrorCode::invalid_argument,
                      "tokens: give exactly one of --text, --messages and --input");
  }
  const bool thinks = options.thinking != Thinking::none || options.keep_thinking;
  if (options.messages.empty() && thinks) {
    throw EngineError(ErrorCode::invalid_argument,
                      "tokens: --thinking and --keep-thinking go with --messages; a text is "
                      "encoded as it is");
  }
}

}  // namespace

int run_tokens(const TokensOptions& options, std::FILE* out) {
  check_options(options);
  // Before the tokenizer, which takes its time.
  const Prompt prompt = read_input(options);
  const Tokenizer tokenizer = value_or_throw(Tokenizer::load(options.model));
  const Encoded encoded = options.messages.empty()
                              ? encode_text(tokenizer, options, prompt.pieces.front().text)
                              : encode_messages(tokenizer, options, prompt);
  if (options.json) {
    print_json(encoded, out);
  } else {
    print_table(tokenizer, encoded, out);
  }
  return 0;
}

}  // namespace ingot
