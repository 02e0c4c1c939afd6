#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/chat/line_editor.hpp"
#include "src/chat/multi_line.hpp"

namespace ingot {

/// What the commands of a chat do. Each gets the rest of its line, without blanks around it.
class ChatActions {
 public:
  virtual ~ChatActions() = default;
  virtual void help(std::string_view command) = 0;
  virtual void begin_new(std::string_view name) = 0;
  virtual void undo(std::string_view) = 0;
  virtual void retry(std::string_view) = 0;
  virtual void edit(std::string_view text) = 0;
  virtual void set_system(std::string_view text) = 0;
  virtual void think(std::string_view effort) = 0;
  virtual void set(std::string_view assignment) = 0;
  virtual void stats(std::string_view on_or_off) = 0;
  virtual void tokens(std::string_view text) = 0;
  virtual void save(std::string_view name) = 0;
  virtual void load(std::string_view name) = 0;
  virtual void sessions(std::string_view) = 0;
  virtual void fork(std::string_view name) = 0;
  virtual void attach(std::string_view file) = 0;
  virtual void export_to(std::string_view file) = 0;
  virtual void tool(std::string_view file) = 0;
  virtual void quit(std::string_view) = 0;
};

/// What stands behind a command's name, for completion.
enum class ArgumentKind { none, text, command, effort, setting, file, session };

/// One line of the table of commands.
struct ChatCommand {
  std::string_view name;       ///< with its slash
  std::string_view arguments;  ///< as the help shows them; empty: it takes none
  ArgumentKind kind;
  std::string_view help;  ///< lines of at most 52 columns
  void (ChatActions::*run)(std::string_view);
  /// What follows in a script is meant for what this does: where it fails, the script is over.
  bool steers = false;
};

std::span<const ChatCommand> chat_commands();
const ChatCommand* find_chat_command(std::string_view name);

/// The table as text of at most 80 columns.
std::string chat_commands_help();

/// What a message asks for, if it is a command: one line that begins with a slash and a word. A
/// word with another slash in it is a path, hence text, and so is all that was quoted or has lines.
struct CommandLine {
  std::string_view name;
  std::string_view argument;
};
std::optional<CommandLine> as_command(const TypedMessage& message);
std::optional<CommandLine> as_command(TypedMessage&& message) = delete;  // points into it

/// Runs it. An error, for the user: an unknown name, or an argument where none is taken.
[[nodiscard]] Result<void> run_chat_command(const CommandLine& line, ChatActions& actions);

/// Whether a script is over where this command fails, a command of an unknown name among them: the
/// next question would be asked in another conversation, or in another way, than its author meant.
bool ends_script(std::string_view name);

/// What completion knows of the rest of the program: the words that may stand for an argument that
/// has begun.
using ArgumentWords = std::function<std::vector<std::string>(ArgumentKind, std::string_view begun)>;
Completions complete_chat_command(std::string_view before, const ArgumentWords& words);

}  // namespace ingot
