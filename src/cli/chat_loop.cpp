#include "src/cli/chat_loop.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "runtime/base/log.hpp"
#include "src/chat/file_argument.hpp"
#include "src/checkpoint/problems.hpp"
#include "src/cli/edit_file.hpp"
#include "src/cli/numeric_report.hpp"
#include "src/cli/standard_output.hpp"
#include "src/text/json_value.hpp"
#include "src/text/terminal_text.hpp"
#include "src/text/utf8.hpp"

namespace ingot {
namespace {

constexpr std::string_view kPrompt = ">>> ";
constexpr std::string_view kContinuation = "... ";

/// Bytes that are not UTF-8 become U+FFFD, so that the conversation is text from now on.
std::string as_text(std::string bytes) {
  if (is_utf8(bytes)) return bytes;
  Utf8Stream characters;
  std::string text = characters.push(bytes);
  return text + characters.finish();
}

}  // namespace

ChatLoop::ChatLoop(const ChatOptions& options, LoadedModel& model)
    : options_(options),
      model_(model),
      plain_(options.plain || options.json),
      terminal_out_(!plain_ && ::isatty(STDOUT_FILENO) == 1),
      interactive_(terminal_out_ && !options.prompt && ::isatty(STDIN_FILENO) == 1),
      script_(!interactive_ && !options.prompt && ::isatty(STDIN_FILENO) != 1),
      colour_(terminal_out_ && !options.environment.no_color && !options.environment.dumb_terminal),
      interrupt_(interactive_ ? Listening::to_a_terminal : Listening::to_programs,
                 Insisting::later),
      store_(session_store(options.environment)) {
  switch_to(add_session("", options.settings));
}

ChatLoop::~ChatLoop() = default;

void ChatLoop::begin_with(std::vector<ChatMessage> messages) {
  value_or_throw(session().load(std::move(messages)));
  now_->unsaved |= !now_->name.empty();
  if (prefer_system_flag()) {
    log::info("--system goes before the system message of {}", options_.conversation.string());
  }
  say_what_waits();
}

void ChatLoop::say(std::string_view line) const {
  if (interactive_) write_out(fmt::format("{}\n", for_terminal(line)));
}

void ChatLoop::tell(std::string_view text) {
  if (options_.json) {
    shown_ += text;
  } else {
    write_out(for_terminal(text));
  }
}

void ChatLoop::complain(const Error& error) {
  note_failure(error);
  if (ends_script_ && !complaint_) {
    complaint_ = error;
  } else {
    log::error("{}", error.message);
  }
}

void ChatLoop::note_failure(const Error& error) {
  // At a terminal somebody has read it and goes on.
  if (!interactive_) status_ = std::max(status_, exit_status(error.code));
}

void ChatLoop::end_script(std::string_view failed, const Error& why) {
  leave_ = true;
  log::error("line {}: {} failed, and the script ends here, as what follows was meant for it: {}",
             line_number_, failed, why.message);
}

void ChatLoop::open_history() {
  const auto& home = options_.environment.state_home;
  if (!interactive_ || home.empty()) return;
  auto opened = history_.open(home / "ingot" / "chat_history", options_.private_mode);
  if (!opened) log::warn("{}", opened.error().message);
  if (history_.damaged_lines() > 0) {
    log::warn("the input history {} is damaged: {} left out",
              (home / "ingot" / "chat_history").string(),
              counted(history_.damaged_lines(), "line"));
  }
}

std::optional<std::string> ChatLoop::edit_text(const std::string& text) {
  const auto ended_by = [this] {
    interrupt_.take_resize();
    // A Ctrl-C in the editor is the editor's.
    if (interactive_) (void)interrupt_.take_interrupt();
    return interrupt_.requested();
  };
  auto edited = edit_in_program(options_.environment.editor, text, interrupt_.wake_fd(), ended_by);
  (void)ended_by();
  if (edited) return as_text(*edited);
  complain(edited.error());
  return std::nullopt;
}

LineInput::Read ChatLoop::next_line() {
  bool touched = false;
  while (true) {
    if (interactive_) write_out(joiner_.empty() ? kPrompt : kContinuation);
    while (!reader_->ready() && interrupt_.requested() == 0 && session().prepare_turn()) {
    }
    auto line = value_or_throw(reader_->next());
    if (!line && reader_->interrupted()) {
      if (interrupt_.requested() == 0) {
        interrupt_.take_resize();
        continue;
      }
      if (!interactive_ || !interrupt_.take_interrupt()) return {Kind::woken};
      write_out("\n");
      if (joiner_.empty()) return {Kind::interrupted, {}, {}, touched};
      joiner_ = {};
      touched = true;
      continue;
    }
    if (!line) {
      if (auto rest = joiner_.finish()) return {Kind::message, std::move(*rest)};
      if (interactive_) write_out("\n");
      return {Kind::end_of_input};
    }
    if (line->too_long || joiner_.bytes() + line->text.size() > kMaxLineBytes) {
      complain({ErrorCode::invalid_argument,
                fmt::format("line {}: the message is longer than {} MiB and was not read",
                            line->number, kMaxLineBytes >> 20)});
      joiner_ = {};
      continue;
    }
    line_number_ = line->number;
    if (auto message = joiner_.push(std::move(line->text))) {
      return {Kind::message, std::move(*message)};
    }
  }
}

LineInput::Read ChatLoop::next_message() {
  if (!input_) return next_line();
  const auto calls = session().open_calls();
  return input_->read(calls.empty() ? std::string(kPrompt)
                                    : fmt::format("result of {}> ", for_terminal(calls[0].name)),
                      kContinuation);
}

std::optional<int> ChatLoop::after_signal() {
  if (interactive_) (void)interrupt_.take_interrupt();
  const int signal = interrupt_.requested();
  if (signal == 0) return std::nullopt;
  return interrupted_status(signal);
}

void ChatLoop::handle(TypedMessage message) {
  if (is_blank(message.text) && message.text.find('\n') == std::string::npos) return;
  if (const auto command = as_command(message)) {
    return run_command(*command);
  }
  std::string text = as_text(std::move(message.text));
  if (!session().open_calls().empty()) return take_result(std::move(text));
  text.insert(0, std::exchange(now_->attached, {}));
  answer(Turn::question, std::move(text));
}

void ChatLoop::run_command(const CommandLine& command) {
  ends_script_ = script_ && ends_script(command.name);
  if (auto ran = run_chat_command(command, *this); !ran) complain(ran.error());
  if (const std::string text = std::exchange(shown_, {}); !text.empty()) {
    write_out(fmt::format("{{\"command\": {}, \"output\": {}}}\n",
                          to_python_json(std::string(command.name)), to_python_json(text)));
  }
  ends_script_ = false;
  const auto complaint = std::exchange(complaint_, std::nullopt);
  if (!complaint) return;
  if (is_in_script()) {
    end_script(command.name, *complaint);
  } else {
    log::error("{}", complaint->message);
  }
}

int ChatLoop::read_messages() {
  bool leaving = false;  // Ctrl-C at an empty prompt: once more leaves
  while (!leave_) {
    LineInput::Read read = next_message();
    switch (read.kind) {
      case Kind::message:
        leaving = false;
        if (auto kept = history_.add(read.typed); !kept) log::warn("{}", kept.error().message);
        handle(std::move(read.message));
        break;
      case Kind::interrupted:
        if (leaving && !read.touched) return interrupted_status(SIGINT);
        say("Once more to leave, or /quit.");
        leaving = true;
        continue;  // the next one may have come already
      case Kind::end_of_input:
      case Kind::gone:
        return after_signal().value_or(status_);
      case Kind::woken:
        break;
    }
    if (const auto status = after_signal()) return *status;
  }
  return status_;
}

int ChatLoop::run() {
  try {
    const int status = converse();
    const bool saved = save_on_leaving(Leaving::as_asked);
    report_totals();
    return saved ? status : std::max(status, exit_status(ErrorCode::io));
  } catch (const ClosedPipe&) {
    (void)save_on_leaving(Leaving::unheard);
    report_totals();
    // A terminal that hangs up says so twice.
    if (const auto status = after_signal()) return *status;
    throw;
  } catch (...) {
    // What went wrong is told above us; what was said until then is kept, a question without its
    // answer, too.
    now_->unsaved |= session().awaits_answer();
    (void)save_on_leaving(Leaving::cut_short);
    throw;
  }
}

Result<void> check_prompt_option(const ChatOptions& options) {
  if (!options.prompt || is_retry_prompt(options)) return {};
  const TypedMessage prompt{*options.prompt};
  const auto command = as_command(prompt);
  if (!command) return {};
  return fail(
      ErrorCode::invalid_argument,
      fmt::format("--prompt {}: {} is no question; of the commands --prompt takes /retry "
                  "alone, standard input takes all (and a message that begins with \"\"\")",
                  cut_utf8(*options.prompt, kMostShown), cut_utf8(command->name, kMostShown)));
}

bool is_retry_prompt(const ChatOptions& options) {
  if (!options.prompt) return false;
  const TypedMessage prompt{*options.prompt};
  const auto command = as_command(prompt);
  return command && command->name == "/retry" && command->argument.empty();
}

int ChatLoop::converse() {
  if (options_.prompt) {
    if (is_retry_prompt(options_)) {
      retry({});
    } else {
      answer(Turn::question, as_text(*options_.prompt));
    }
    return after_signal().value_or(status_);
  }
  open_history();
  if (interactive_ && !options_.environment.dumb_terminal) {
    LineInput::Hooks hooks;
    hooks.write = write_out;
    hooks.complete = [this](std::string_view before) { return complete(before); };
    hooks.edit_elsewhere = [this](std::string text) { return edit_text(text); };
    hooks.unfold = [this] {
      if (last_thought_.empty()) return;
      write_out(for_terminal(last_thought_) + (last_thought_.ends_with('\n') ? "" : "\n"));
    };
    hooks.after_wake = [this] {
      interrupt_.take_resize();
      if (interrupt_.take_interrupt()) return LineInput::Wake::interrupt;
      return interrupt_.requested() == 0 ? LineInput::Wake::go_on : LineInput::Wake::leave;
    };
    hooks.while_idle = [this] { return session().prepare_turn(); };
    input_ =
        std::make_unique<LineInput>(STDIN_FILENO, interrupt_.wake_fd(), history_, std::move(hooks));
  } else {
    reader_ = std::make_unique<LineReader>(STDIN_FILENO, "standard input", kMaxLineBytes,
                                           interrupt_.wake_fd());
  }
  say("/help lists the commands.");
  return read_messages();
}

int talk(const ChatOptions& options, LoadedModel& model, std::vector<ChatMessage> messages,
         std::vector<std::string> tools) {
  ignore_closed_pipes();
  try {
    ChatLoop chat(options, model);
    if (!options.session.empty()) {
      value_or_throw(check_session(options));
      chat.go_on_with(with_home(options.session, options.environment.home));
    }
    if (!messages.empty()) chat.begin_with(std::move(messages));
    if (!tools.empty()) chat.offer_tools(std::move(tools));
    const int status = chat.run();
    // An answer that NaN ended has said so itself.
    if (model.engine->numeric_faults().nan_rows == 0) report_numeric_faults(*model.engine);
    return status;
  } catch (const ClosedPipe&) {
    return kClosedPipeStatus;
  }
}

}  // namespace ingot
