#pragma once

#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/batch/line_reader.hpp"
#include "src/chat/answer_view.hpp"
#include "src/chat/chat_commands.hpp"
#include "src/chat/chat_session.hpp"
#include "src/chat/input_history.hpp"
#include "src/chat/line_input.hpp"
#include "src/chat/session_store.hpp"
#include "src/cli/chat_command.hpp"
#include "src/cli/interrupt.hpp"
#include "src/cli/model_loader.hpp"

namespace ingot {

/// Bytes of what a user typed, in a message about it.
inline constexpr std::size_t kMostShown = 60;

/// One conversation of a chat, and what belongs to it alone.
struct OpenSession {
  std::string name;        ///< or the path of its file; empty: it was given none
  bool automatic = false;  ///< nobody chose the name
  Settings settings;
  std::unique_ptr<ChatSession> session;
  TurnStats totals;
  int answers = 0;
  bool warned = false;   ///< that the context ends soon
  std::string attached;  ///< goes in front of the next message
  std::string refused;   ///< the last question, where it could not be answered
  bool unsaved = false;  ///< it has turns that its file has not
  /// What its file has, where it has one: what was taken back since is there.
  std::vector<ChatMessage> in_file;
  std::uint64_t used_at = 0;  ///< counts up with every change of session
  /// Files whose content is this conversation's: as they were when it was read or written.
  std::map<std::filesystem::path, Digest> files;
};

/// A chat from its first prompt to its end: reads messages (from a terminal with editing, a plain
/// terminal or a pipe), runs commands, shows answers. One object a process; main thread.
class ChatLoop final : private ChatActions {
 public:
  /// `options` and `model` must outlive it. Listens to signals from here on.
  ChatLoop(const ChatOptions& options, LoadedModel& model);
  ~ChatLoop() override;

  /// Begins with these messages.
  void begin_with(std::vector<ChatMessage> messages);
  /// Lets the model call these from the start.
  void offer_tools(std::vector<std::string> tools) { session().set_tools(std::move(tools)); }
  /// Goes on with a saved session, or gives the one that begins this name. Throws EngineError.
  void go_on_with(const std::string& name);
  /// Returns the exit status. Throws ClosedPipe where nobody reads our output any more.
  int run();

 private:
  using Kind = LineInput::Kind;

  int converse();
  void open_history();
  LineInput::Read next_message();
  LineInput::Read next_line();
  int read_messages();
  /// What a signal that came means: an exit status, or go on.
  std::optional<int> after_signal();
  void handle(TypedMessage message);
  void run_command(const CommandLine& command);
  /// What comes next would be asked in another conversation than its author meant: in a script
  /// nothing more is read. Says which of its lines failed, and why.
  void end_script(std::string_view failed, const Error& why);
  /// Whether what fails now ends the script.
  bool is_in_script() const { return script_ && interrupt_.requested() == 0; }

  enum class Turn { question, as_it_stands, again };
  /// One answer, with the calls of functions that it makes where a command answers these.
  void answer(Turn turn, std::string question = {});
  /// One answer. Nothing where it failed.
  std::optional<TurnStats> answer_once(Turn turn, std::string question);
  Result<TurnStats> generate(Turn turn, std::string question, AnswerView& view);
  void report(const TurnStats& stats);
  void take_result(std::string result);
  Result<void> run_tool_command();
  /// A call that is not answered leaves a script behind that was meant for its answer.
  void fail_call(const Error& error);

  void apply_settings();
  /// The settings that the command line names go before those of the session that is gone on with;
  /// says where they differ. Throws EngineError where they do not go together with the others.
  void prefer_flags();
  /// Whether that changed anything.
  bool prefer_system_flag();
  OpenSession& add_session(std::string name, Settings settings);
  OpenSession* find_open(std::string_view name);
  void switch_to(OpenSession& open);
  /// switch_to(), after which the one before can be returned to: one without a name gets one, an
  /// empty one is closed.
  void leave_for(OpenSession& open);
  /// Of a conversation that was just gone to: whether its end waits for an answer, which nothing
  /// but /retry gives it, and whether it is longer than the context.
  void say_what_waits() const;
  /// A name that no open session and no file has.
  std::string free_name(const std::string& name) const;
  /// Whether a new session may have this name; says why not.
  bool may_be_called(std::string_view name);
  void close_session(const OpenSession& open);
  /// Gives back what the engine holds of the others; whether that was anything.
  bool release_other_sessions();
  struct SaveOptions {
    bool any_session = false;    ///< replaces another one
    bool without_state = false;  ///< of the engine: the conversation alone
  };
  /// Returns what was saved, for people.
  Result<std::string> save_as(OpenSession& open, const std::filesystem::path& file,
                              const SaveOptions& how);
  Result<std::string> save_as(OpenSession& open, const std::filesystem::path& file) {
    return save_as(open, file, {});
  }
  /// Without the engine's state where that is not to be had. Never throws.
  Result<std::string> save_in_any_case(OpenSession& open, const std::filesystem::path& file);
  enum class Leaving {
    as_asked,   ///< or by a signal
    cut_short,  ///< by an error
    unheard,    ///< nobody reads our output any more
  };
  /// Saves what the user would miss. False where a session that was given a name is not. Never
  /// throws.
  bool save_on_leaving(Leaving leaving);
  bool save_on_leaving(OpenSession& open, Leaving leaving);
  /// Reads a session file into a session that is open from then on. Error: the running one is as it
  /// was.
  Result<OpenSession*> open_saved(const std::filesystem::path& file, std::string name);
  /// Whether the file of a session has all of its messages.
  static bool is_in_file(const OpenSession& open);
  /// Whether it has more: turns were taken back.
  static bool is_cut_back(const OpenSession& open);
  /// Makes this session what its file says. False where that cannot be read: it is as it was.
  bool go_back_to_file();
  ChatSession& session() { return *now_->session; }
  const ChatSession& session() const { return *now_->session; }
  void say(std::string_view line) const;
  /// What a command was asked for.
  void tell(std::string_view text);
  /// Says it, or, of a command that may end the script, leaves it to what says so.
  void complain(const Error& error);
  /// The exit status has it.
  void note_failure(const Error& error);
  void report_totals() const;
  /// Nothing where the editor failed.
  std::optional<std::string> edit_text(const std::string& text);
  Completions complete(std::string_view before) const;
  std::vector<std::string> argument_words(ArgumentKind kind, std::string_view begun) const;

  // The commands, in chat_loop_commands.cpp.
  void help(std::string_view command) override;
  void begin_new(std::string_view name) override;
  void undo(std::string_view) override;
  void retry(std::string_view) override;
  void edit(std::string_view text) override;
  void set_system(std::string_view text) override;
  void think(std::string_view argument) override;
  void set(std::string_view assignment) override;
  void stats(std::string_view argument) override;
  void tokens(std::string_view text) override;
  void save(std::string_view name) override;
  void load(std::string_view name) override;
  void sessions(std::string_view) override;
  void fork(std::string_view name) override;
  void attach(std::string_view file) override;
  void export_to(std::string_view file) override;
  void tool(std::string_view file) override;
  void quit(std::string_view) override;
  void show_settings();

  const ChatOptions& options_;
  LoadedModel& model_;
  const bool plain_;         ///< a terminal counts as a pipe
  const bool terminal_out_;  ///< a person reads our output
  const bool interactive_;   ///< and writes our input
  const bool script_;        ///< nobody sits before our input
  const bool colour_;
  InterruptGuard interrupt_;
  SessionStore store_;
  std::vector<std::unique_ptr<OpenSession>> open_;
  OpenSession* now_ = nullptr;  ///< one of them
  std::uint64_t switches_ = 0;
  InputHistory history_;
  std::unique_ptr<LineInput> input_;    ///< with editing
  std::unique_ptr<LineReader> reader_;  ///< without
  LineJoiner joiner_;
  bool fold_ = false;       ///< thinking is shown as how much there is
  bool show_stats_ = true;  ///< a line after each answer, on a terminal
  TurnStats totals_;        ///< of all sessions, those that are closed among them
  int answers_ = 0;
  std::string last_thought_;
  std::string shown_;  ///< by the command that runs, for a line of JSON
  std::int64_t line_number_ = 0;
  bool ends_script_ = false;        ///< the command that runs, should it fail
  std::optional<Error> complaint_;  ///< of that command, not said yet
  bool leave_ = false;
  std::exception_ptr output_lost_;  ///< why nothing can be written any more
  int status_ = 0;
};

/// Where the sessions of this user lie.
SessionStore session_store(const Environment& environment);

/// Whether --session can be gone on with, or begun, before anything large is loaded. Errors:
/// invalid_argument for a name that is none, and where --conversation would take a saved one's
/// place; not_found where the folder of a path is missing.
[[nodiscard]] Result<void> check_session(const ChatOptions& options);

/// Whether --prompt is a question, or /retry. Error: invalid_argument for another command, which
/// would be asked as text.
[[nodiscard]] Result<void> check_prompt_option(const ChatOptions& options);
/// Whether --prompt asks for the answer of the last question.
bool is_retry_prompt(const ChatOptions& options);

/// A whole chat with a model that is loaded: what `ingot chat` does from there on.
/// @param messages  to begin with, checked; may be empty
/// @param tools     functions that the model may call, as parse_chat_tools() gives them
/// Returns the exit status. Throws EngineError.
int talk(const ChatOptions& options, LoadedModel& model, std::vector<ChatMessage> messages,
         std::vector<std::string> tools);

}  // namespace ingot
