#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/batch/line_reader.hpp"
#include "src/chat/chat_commands.hpp"
#include "src/chat/chat_session.hpp"
#include "src/chat/input_history.hpp"
#include "src/chat/line_input.hpp"
#include "src/cli/chat_command.hpp"
#include "src/cli/interrupt.hpp"
#include "src/cli/model_loader.hpp"

namespace ingot {

/// A chat from its first prompt to its end: reads messages (from a terminal with editing, a plain
/// terminal or a pipe), runs commands, shows answers. One object a process; main thread.
class ChatLoop final : private ChatActions {
 public:
  /// `options` and `model` must outlive it. Listens to signals from here on.
  ChatLoop(const ChatOptions& options, LoadedModel& model);
  ~ChatLoop() override;

  /// Begins with these messages.
  void load(std::vector<ChatMessage> messages);
  /// Returns the exit status. Throws ClosedPipe where nobody reads our output any more.
  int run();

 private:
  using Kind = LineInput::Kind;

  void open_history();
  LineInput::Read next_message();
  LineInput::Read next_line();
  int read_messages();
  /// What a signal that came means: an exit status, or go on.
  std::optional<int> after_signal();
  void handle(const TypedMessage& message);

  enum class Turn { question, as_it_stands, again };
  void answer(Turn turn, std::string question = {});
  void print_stats(const TurnStats& stats) const;

  void apply_settings();
  void say(std::string_view line) const;
  void complain(const Error& error);
  std::string edit_text(const std::string& text);
  Completions complete(std::string_view before) const;
  std::vector<std::string> argument_words(ArgumentKind kind, std::string_view begun) const;

  // The commands, in chat_loop_commands.cpp.
  void help(std::string_view command) override;
  void begin_new(std::string_view name) override;
  void undo(std::string_view) override;
  void retry(std::string_view) override;
  void edit(std::string_view text) override;
  void set_system(std::string_view text) override;
  void think(std::string_view effort) override;
  void set(std::string_view assignment) override;
  void stats(std::string_view) override;
  void tokens(std::string_view text) override;
  void quit(std::string_view) override;
  void show_settings() const;

  const ChatOptions& options_;
  LoadedModel& model_;
  const bool terminal_out_;  ///< a person reads our output
  const bool interactive_;   ///< and writes our input
  const bool colour_;
  InterruptGuard interrupt_;
  Settings settings_;  ///< of this session
  ChatSession session_;
  InputHistory history_;
  std::unique_ptr<LineInput> input_;    ///< with editing
  std::unique_ptr<LineReader> reader_;  ///< without
  LineJoiner joiner_;
  TurnStats totals_;
  int turns_ = 0;
  bool leave_ = false;
  int status_ = 0;
};

}  // namespace ingot
