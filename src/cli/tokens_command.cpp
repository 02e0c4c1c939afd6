#include "src/cli/tokens_command.hpp"

#include <fmt/format.h>

#include "runtime/base/error.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/printable.hpp"
#include "src/checkpoint/model_config.hpp"
#include "src/cli/model_loader.hpp"
#include "src/cli/read_text_file.hpp"
#include "src/cli/text_parts.hpp"
#include "src/text/chat_encoding.hpp"
#include "src/text/json_value.hpp"
#include "src/text/text_check.hpp"
#include "src/text/tokenizer.hpp"
#include "src/text/utf8.hpp"

namespace ingot {
namespace {

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

/// The prompt that the messages make: all that can be wrong with them.
Prompt read_messages(const TokensOptions& options) {
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

/// A token's bytes on one line; those that are no character of their own as \xNN.
std::string piece_text(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const std::size_t valid = valid_utf8_prefix(bytes);
    const std::string quoted = printable_json(to_python_json(bytes.substr(0, valid)));
    out.append(quoted, 1, quoted.size() - 2);
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    out += fmt::format("\\x{:02X}", static_cast<unsigned char>(bytes[0]));
    bytes.remove_prefix(1);
  }
  return out;
}

/// Prints ids as they come: a table, or one JSON object whose text is there before them.
class Printer {
 public:
  Printer(const Tokenizer& tokenizer, bool json, std::FILE* out)
      : tokenizer_(tokenizer), json_(json), out_(out) {
    if (json_) fmt::print(out_, "{{\"prompt\": \"");
  }

  /// Of JSON: a part of the text.
  void text(std::string_view part) {
    std::string mended;
    const std::string quoted = printable_json(to_python_json(mend_utf8(part, mended)));
    fmt::print(out_, "{}", std::string_view(quoted).substr(1, quoted.size() - 2));
  }
  void ids(std::span<const TokenId> ids) {
    if (!json_) {
      for (const TokenId id : ids) {
        fmt::print(out_, "{:>6}  \"{}\"{}\n", id, piece_text(tokenizer_.bytes(id)),
                   tokenizer_.is_added(id) ? "  control" : "");
      }
    } else if (!ids.empty()) {
      fmt::print(out_, "{}{}", count_ == 0 ? "\", \"ids\": [" : ", ", fmt::join(ids, ", "));
    }
    count_ += ids.size();
  }
  void end() {
    if (json_) {
      fmt::print(out_, "{}]}}\n", count_ == 0 ? "\", \"ids\": [" : "");
    } else {
      fmt::print(out_, "{} token{}\n", count_, count_ == 1 ? "" : "s");
    }
  }

 private:
  const Tokenizer& tokenizer_;
  bool json_;
  std::FILE* out_;
  std::size_t count_ = 0;
};

/// Calls `take` with each part of the text.
template <class Take>
void for_each_part(TextParts& parts, const Take& take) {
  while (const auto part = value_or_throw(parts.next()))
    take(*part);
}

void print_text(const Tokenizer& tokenizer, const TokensOptions& options, std::FILE* out) {
  const AddedTokens added = options.allow_special ? AddedTokens::recognise : AddedTokens::as_text;
  TextParts parts = options.text ? TextParts(tokenizer, added, *options.text)
                                 : value_or_throw(TextParts::open(tokenizer, added, options.input));
  // Half an object is none, so all of it is looked at before.
  warn_of_faults(parts.name(), value_or_throw(parts.check()));
  Printer printer(tokenizer, options.json, out);
  if (options.json) {
    for_each_part(parts, [&](std::string_view part) { printer.text(part); });
    value_or_throw(parts.rewind());
  }
  std::vector<TokenId> ids;
  for_each_part(parts, [&](std::string_view part) {
    ids.clear();
    tokenizer.encode(part, added, ids);
    printer.ids(ids);
  });
  printer.end();
}

void print_prompt(const Tokenizer& tokenizer, const TokensOptions& options, const Prompt& prompt,
                  std::FILE* out) {
  const std::vector<TokenId> ids = encode_prompt(tokenizer, prompt, options.allow_special);
  Printer printer(tokenizer, options.json, out);
  if (options.json) printer.text(prompt.text());
  printer.ids(ids);
  printer.end();
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
  Prompt prompt;
  if (!options.messages.empty()) prompt = read_messages(options);
  if (!options.input.empty()) value_or_throw(check_text_file(options.input, SIZE_MAX));
  const Tokenizer tokenizer = value_or_throw(Tokenizer::load(options.model));
  if (options.messages.empty()) {
    print_text(tokenizer, options, out);
  } else {
    print_prompt(tokenizer, options, prompt, out);
  }
  return 0;
}

}  // namespace ingot
