#include "src/cli/chat_command.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "runtime/base/log.hpp"
#include "src/batch/line_reader.hpp"
#include "src/chat/chat_session.hpp"
#include "src/cli/interrupt.hpp"
#include "src/cli/model_loader.hpp"
#include "src/cli/read_text_file.hpp"
#include "src/cli/terminal_text.hpp"
#include "src/text/prompt_length.hpp"

namespace ingot {
namespace {

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kPlain = "\x1b[0m";
constexpr std::string_view kPromptMark = ">>> ";

constexpr std::string_view kCommands =
    "/help   this list\n"
    "/new    begin a new conversation\n"
    "/undo   take the last question and its answer back\n"
    "/quit   leave (so does the end of input)\n"
    "Any other line is a message. Ctrl-C ends an answer.\n";

/// The reader of our output has gone: leave without a word, as if its signal had ended us.
struct ClosedPipe {};

void write_out(std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(STDOUT_FILENO, text.data(), text.size());
    if (wrote >= 0) {
      text.remove_prefix(static_cast<std::size_t>(wrote));
    } else if (errno == EPIPE) {
      throw ClosedPipe();
    } else if (errno != EINTR) {
      throw EngineError(ErrorCode::io,
                        fmt::format("writing to standard output: {}", std::strerror(errno)));
    }
  }
}

/// Shows an answer as it comes. On a terminal thinking is shown too, dim; elsewhere only the answer
/// is written, so that a pipe gets what it asked for.
class AnswerPrinter {
 public:
  AnswerPrinter(bool terminal, bool colour) : terminal_(terminal), colour_(terminal && colour) {}

  void show(const OutputDelta& delta) {
    if (terminal_ && !delta.reasoning.empty()) think(delta.reasoning);
    if (!delta.content.empty()) {
      stop_thinking();
      emit(delta.content);
    }
    for (const ToolCall& call : delta.tool_calls) {
      stop_thinking();
      if (!at_line_start_) emit("\n");
      emit(fmt::format("[tool call] {} {}\n", call.name, call.arguments));
    }
  }

  void end() {
    stop_thinking();
    if (!at_line_start_ || nothing_) write_out("\n");
  }

 private:
  void emit(std::string_view text) {
    write_out(terminal_ ? for_terminal(text) : std::string(text));
    at_line_start_ = text.ends_with('\n');
    nothing_ = false;
  }
  void think(std::string_view text) {
    if (!thinking_) write_out(colour_ ? kDim : "<think>\n");
    thinking_ = true;
    emit(text);
  }
  void stop_thinking() {
    if (!thinking_) return;
    thinking_ = false;
    if (!at_line_start_) emit("\n");
    write_out(colour_ ? kPlain : "</think>\n");
  }

  bool terminal_;
  bool colour_;
  bool thinking_ = false;
  bool at_line_start_ = true;
  bool nothing_ = true;
};

class Chat {
 public:
  Chat(const ChatOptions& options, LoadedModel& model)
      : options_(options),
        interactive_(::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1),
        terminal_(::isatty(STDOUT_FILENO) == 1),
        session_(*model.engine, *model.tokenizer, session_options(options, model)) {}

  void load(std::vector<ChatMessage> messages);
  int run();

 private:
  enum class Next { go_on, leave };

  static ChatSessionOptions session_options(const ChatOptions& options, const LoadedModel& model);
  Next handle(InputLine line);
  bool command(std::string_view line, Next& next);
  void answer(std::optional<std::string> question);
  void print_stats(const TurnStats& stats) const;
  int read_lines();

  const ChatOptions& options_;
  bool interactive_;
  bool terminal_;
  InterruptGuard interrupt_;
  ChatSession session_;
  int status_ = 0;
};

ChatSessionOptions Chat::session_options(const ChatOptions& options, const LoadedModel& model) {
  ChatSessionOptions out;
  out.encoding.thinking = thinking_from_name(options.settings.thinking);
  out.encoding.efforts = model.efforts;
  out.encoding.keep_thinking = options.settings.keep_thinking;
  out.sampling = sampling_params(options.settings, std::random_device{}());
  out.scheduler = scheduler_options(options.settings);
  out.system = options.settings.system;
  return out;
}

void Chat::load(std::vector<ChatMessage> messages) {
  value_or_throw(session_.load(std::move(messages)));
}

void Chat::print_stats(const TurnStats& stats) const {
  const double decode_s = stats.total_s - stats.first_token_s;
  const auto generated = stats.thinking_tokens + stats.answer_tokens;
  log::info(
      "prompt {} tokens ({} reused, {} prefilled), thinking {}, answer {}, {}; first token {:.3f} "
      "s, "
      "{:.1f} tokens/s",
      stats.prompt_tokens, stats.reused_tokens, stats.prefilled_tokens(), stats.thinking_tokens,
      stats.answer_tokens, finish_reason_name(stats.finish_reason), stats.first_token_s,
      generated > 1 && decode_s > 0 ? static_cast<double>(generated - 1) / decode_s : 0.0);
}

void Chat::answer(std::optional<std::string> question) {
  AnswerPrinter printer(terminal_,
                        !options_.environment.no_color && !options_.environment.dumb_terminal);
  const auto on_delta = [&](const OutputDelta& delta) { printer.show(delta); };
  const auto should_stop = [&] { return interrupt_.requested() != 0; };
  const auto stats = question ? session_.ask(std::move(*question), on_delta, should_stop)
                              : session_.answer(on_delta, should_stop);
  if (!stats) {
    log::error("{}", stats.error().message);
    status_ = exit_status(stats.error().code);
    return;
  }
  printer.end();
  if (options_.stats) print_stats(*stats);
}

bool Chat::command(std::string_view line, Next& next) {
  if (line == "/quit") {
    next = Next::leave;
  } else if (line == "/new") {
    session_.reset();
    if (interactive_) write_out("A new conversation.\n");
  } else if (line == "/undo") {
    const bool undone = session_.undo();
    if (interactive_) write_out(undone ? "Taken back.\n" : "There is nothing to take back.\n");
  } else if (line == "/help") {
    write_out(kCommands);
  } else {
    return false;
  }
  return true;
}

Chat::Next Chat::handle(InputLine line) {
  if (line.too_long) {
    log::error("line {} is longer than {} MiB and was not read", line.number, kMaxLineBytes >> 20);
    status_ = 2;
    return Next::go_on;
  }
  if (is_blank(line.text)) return Next::go_on;
  Next next = Next::go_on;
  if (command(line.text, next)) return next;
  if (interactive_ && line.text.starts_with('/') &&
      line.text.find_first_of(" /", 1) == std::string::npos) {
    write_out(fmt::format("{} is not a command; /help lists them.\n", for_terminal(line.text)));
    return Next::go_on;
  }
  // Bytes that are not UTF-8 become U+FFFD here, so that the conversation is text from now on.
  Utf8Stream characters;
  std::string text = characters.push(line.text);
  line.text = {};
  text += characters.finish();
  answer(std::move(text));
  return Next::go_on;
}

int Chat::read_lines() {
  LineReader input(STDIN_FILENO, "standard input", kMaxLineBytes, interrupt_.wake_fd());
  bool leaving = false;  // Ctrl-C at an empty prompt: once more leaves
  while (true) {
    if (interactive_) write_out(kPromptMark);
    auto line = value_or_throw(input.next());
    if (line) {
      leaving = false;
      if (handle(std::move(*line)) == Next::leave) return status_;
    } else if (!input.interrupted()) {
      if (interactive_) write_out("\n");
      return status_;
    }
    const int signal = interrupt_.requested();
    if (signal == 0) continue;
    if (!interactive_ || signal != 2 /* SIGINT */ || leaving) return interrupted_status(signal);
    if (!line) {
      write_out("\nOnce more to leave, or /quit.\n");
      leaving = true;
    }
    interrupt_.reset();
  }
}

int Chat::run() {
  if (options_.prompt) {
    answer(*options_.prompt);
    return interrupt_.requested() != 0 ? interrupted_status(interrupt_.requested()) : status_;
  }
  if (session_.awaits_answer()) {
    answer(std::nullopt);
    if (const int signal = interrupt_.requested(); signal != 0) {
      if (!interactive_) return interrupted_status(signal);
      interrupt_.reset();
    }
  }
  if (interactive_) write_out("/help lists the commands.\n");
  return read_lines();
}

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
  ignore_closed_pipes();
  std::vector<ChatMessage> messages;
  if (!options.conversation.empty()) messages = read_conversation(options.conversation);
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
  LoadedModel model =
      value_or_throw(load_weights(std::move(opened), options.settings, options.environment));
  try {
    Chat chat(options, model);
    if (!messages.empty()) chat.load(std::move(messages));
    return chat.run();
  } catch (const ClosedPipe&) {
    return kClosedPipeStatus;
  }
}

}  // namespace ingot
