#include "src/chat/chat_commands.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace ingot {
namespace {

using A = ChatActions;
using K = ArgumentKind;

constexpr ChatCommand kCommands[] = {
    {"/help", "[COMMAND]", K::command, "this list, or one command of it", &A::help},
    {"/new", "[NAME]", K::text, "begin a new conversation; a named one stays open", &A::begin_new,
     true},
    {"/undo", "", K::none, "take the last question and its answer back", &A::undo, true},
    {"/retry", "", K::none, "answer the last question, or answer it again", &A::retry},
    {"/edit", "[TEXT]", K::text, "write the next message in $EDITOR", &A::edit},
    {"/system", "[TEXT|@FILE|none]", K::text, "show the system message, set it, remove it",
     &A::set_system, true},
    {"/think", "[none|low|high|max] [budget N]", K::effort,
     "how much the model thinks, and when it must answer;\nfold hides what it thinks, show shows "
     "it",
     &A::think, true},
    {"/set", "[SETTING [VALUE]]", K::setting,
     "settings of this session; unset gives the default;\nstop \"a\" \"b\" sets two, stop \"\" "
     "none",
     &A::set, true},
    {"/stats", "[on|off]", K::text, "tokens and times so far; the line after each answer",
     &A::stats},
    {"/tokens", "[TEXT]", K::text, "ids of a text, or of the last question", &A::tokens},
    {"/save", "[--force] [NAME]", K::session,
     "save this session, with the state of the engine;\n--force replaces another session",
     &A::save},
    {"/load", "NAME", K::session,
     "go on with an open session, or a saved one;\na question without an answer waits for /retry",
     &A::load, true},
    {"/sessions", "", K::none, "list open and saved sessions", &A::sessions},
    {"/fork", "NAME", K::text, "go on in a copy of this session", &A::fork, true},
    {"/attach", "[FILE]", K::file, "a text file for the next message; alone: drop it", &A::attach,
     true},
    {"/export", "FILE.md|FILE.jsonl", K::file, "write the conversation to a new file",
     &A::export_to},
    {"/tool", "[FILE.json|none]", K::file, "functions that the model may call", &A::tool, true},
    {"/quit", "", K::none, "leave (Ctrl-D does, too)", &A::quit},
};

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

std::span<const ChatCommand> chat_commands() {
  return kCommands;
}

const ChatCommand* find_chat_command(std::string_view name) {
  const auto found = std::find_if(std::begin(kCommands), std::end(kCommands),
                                  [&](const ChatCommand& command) { return command.name == name; });
  return found == std::end(kCommands) ? nullptr : found;
}

std::string chat_commands_help() {
  std::string out;
  constexpr std::size_t kUsageColumns = 28;
  for (const ChatCommand& command : kCommands) {
    std::string usage(command.name);
    if (!command.arguments.empty()) usage += ' ' + std::string(command.arguments);
    if (usage.size() >= kUsageColumns) {
      out += usage + '\n';
      usage.clear();
    }
    std::string_view help = command.help;
    while (!help.empty()) {
      const std::size_t end = std::min(help.find('\n'), help.size());
      out +=
          fmt::format("{:<{}}{}\n", std::exchange(usage, {}), kUsageColumns, help.substr(0, end));
      help.remove_prefix(std::min(end + 1, help.size()));
    }
  }
  return out;
}

std::optional<CommandLine> as_command(const TypedMessage& message) {
  const std::string_view text = trim(message.text);
  if (message.literal || text.size() < 2 || text[0] != '/' || !is_letter(text[1])) {
    return std::nullopt;
  }
  const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view name = text.substr(0, end);
  if (name.find_first_of("/.", 1) != std::string_view::npos) return std::nullopt;  // a path
  return CommandLine{name, trim(text.substr(end))};
}

Result<void> run_chat_command(const CommandLine& line, ChatActions& actions) {
  const ChatCommand* command = find_chat_command(line.name);
  if (command == nullptr) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} is not a command; /help lists them (\"\"\" in front makes it text)",
                            line.name));
  }
  if (command->arguments.empty() && !line.argument.empty()) {
    return fail(
        ErrorCode::invalid_argument,
        fmt::format("{} takes nothing behind it, but there is \"{}\"", line.name, line.argument));
  }
  (actions.*command->run)(line.argument);
  return {};
}

bool ends_script(std::string_view name) {
  const ChatCommand* command = find_chat_command(name);
  return command == nullptr || command->steers;
}

Completions complete_chat_command(std::string_view before, const ArgumentWords& words) {
  Completions out;
  const std::size_t space = before.find(' ');
  if (space == std::string_view::npos) {
    for (const ChatCommand& command : kCommands) {
      if (command.name.starts_with(before)) out.candidates.emplace_back(command.name);
    }
  } else if (const ChatCommand* command = find_chat_command(before.substr(0, space))) {
    // A file's name may hold blanks; of everything else the first word is completed.
    out.begin = std::min(before.find_first_not_of(' ', space), before.size());
    const std::string_view begun = before.substr(out.begin);
    const bool later_word = begun.find(' ') != std::string_view::npos;
    if (later_word && command->kind != K::file) return out;
    out.candidates = words(command->kind, begun);
    std::erase_if(out.candidates, [&](const std::string& w) { return !w.starts_with(begun); });
  }
  std::sort(out.candidates.begin(), out.candidates.end());
  return out;
}

}  // namespace ingot
