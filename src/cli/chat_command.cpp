#include "src/cli/chat_command.hpp"

#include <fmt/core.h>

#include <utility>

#include "src/cli/chat_loop.hpp"
#include "src/cli/engine_counts.hpp"
#include "src/cli/model_loader.hpp"
#include "src/cli/read_text_file.hpp"
#include "src/text/prompt_length.hpp"
#include "src/weights/model_fingerprint.hpp"

namespace ingot {
namespace {

std::vector<ChatMessage> read_conversation(const std::filesystem::path& file) {
  const std::string json = value_or_throw(read_text_file(file, kMaxMessagesBytes));
  return value_or_throw(parse_chat_messages(json, file.string()));
}

/// Whether a conversation makes sense to the model and leaves room for an answer.
Result<void> check_conversation_fits(const ChatOptions& options, const OpenedModel& model,
                                     const std::vector<ChatMessage>& messages) {
  ChatEncodingOptions encoding;
  encoding.thinking = thinking_from_name(options.settings.thinking);
  encoding.efforts = model.efforts;
  encoding.keep_thinking = options.settings.keep_thinking;
  encoding.generation_prompt = false;
  const auto rendered = render_chat(messages, encoding);
  if (!rendered) return Unexpected(rendered.error());
  auto fits = check_text_fits(*model.tokenizer, rendered->bytes(), model.max_context);
  if (!fits) return fits;
  return check_prompt_fits(encode_prompt(*model.tokenizer, *rendered).size(), model.max_context);
}

}  // namespace

int run_chat(const ChatOptions& options) {
  value_or_throw(check_prompt_option(options));
  value_or_throw(check_session(options));
  std::vector<ChatMessage> messages;
  if (!options.conversation.empty()) messages = read_conversation(options.conversation);
  std::vector<std::string> tools;
  if (!options.tools.empty()) {
    const std::string json = value_or_throw(read_text_file(options.tools, kMaxMessagesBytes));
    tools = value_or_throw(parse_chat_tools(json, options.tools.string()));
  }
  OpenedModel opened =
      value_or_throw(open_model(options.settings, options.environment, WithTokenizer::yes));
  value_or_throw(check_sampling(options.settings, opened.config()));
  value_or_throw(check_effort(thinking_from_name(options.settings.thinking), opened.efforts));
  if (!messages.empty()) {
    if (auto fits = check_conversation_fits(options, opened, messages); !fits) {
      Error error = fits.error();
      error.message = fmt::format("reading {}: {}", options.conversation.string(), error.message);
      throw EngineError(std::move(error));
    }
  }
  const Digest fingerprint = value_or_throw(model_fingerprint(opened.checkpoint));
  if (options.plain) opened.device_reason.clear();  // scripts need no notices
  LoadedModel model =
      value_or_throw(load_weights(std::move(opened), options.settings, options.environment));
  model.fingerprint = fingerprint;
  const int status = talk(options, model, std::move(messages), std::move(tools));
  if (options.stats) print_engine_counts(*model.engine);
  return status;
}

}  // namespace ingot
