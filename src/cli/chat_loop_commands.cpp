// What the commands of a chat do.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/chat/file_argument.hpp"
#include "src/chat/quoted_text.hpp"
#include "src/checkpoint/problems.hpp"
#include "src/cli/chat_loop.hpp"
#include "src/cli/session_settings.hpp"
#include "src/cli/standard_output.hpp"
#include "src/text/effort.hpp"
#include "src/text/terminal_text.hpp"
#include "src/text/utf8.hpp"

namespace ingot {
namespace {

constexpr std::string_view kKeys =
    "\nSeveral lines: \\ at the end of a line, \"\"\" around them, Alt-Enter, or a paste.\n"
    "Ctrl-C ends an answer, Ctrl-T folds thinking, Ctrl-R searches the history,\n"
    "Ctrl-X Ctrl-E opens $EDITOR, Tab completes commands.\n";

std::pair<std::string_view, std::string_view> first_word(std::string_view text) {
  const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
  const std::size_t next = std::min(text.find_first_not_of(" \t", end), text.size());
  return {text.substr(0, end), text.substr(next)};
}

/// What a setting is given by a line: quoted texts one by one where it takes several (an empty one
/// alone leaves it none), and otherwise all of it as one.
std::vector<std::string> typed_words(const SettingSpec& spec, std::string_view value) {
  if (std::holds_alternative<std::vector<std::string> Settings::*>(spec.member)) {
    if (auto list = quoted_list(value)) {
      return list->size() == 1 && list->front().empty() ? std::vector<std::string>() : *list;
    }
  }
  return {unquoted(value)};
}

}  // namespace

void ChatLoop::help(std::string_view command) {
  if (command.empty()) {
    tell(chat_commands_help());
    tell(kKeys);
    return;
  }
  const std::string name =
      command.starts_with('/') ? std::string(command) : fmt::format("/{}", command);
  if (const ChatCommand* found = find_chat_command(name)) {
    std::string text(found->help);
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3)
      text.insert(at + 1, "  ");
    const std::string_view blank = found->arguments.empty() ? "" : " ";
    tell(fmt::format("{}{}{}\n  {}\n", found->name, blank, found->arguments, text));
  } else {
    complain({ErrorCode::not_found, fmt::format("{} is not a command; /help lists them", name)});
  }
}

void ChatLoop::undo(std::string_view) {
  // What was asked last is taken back, also where it was refused.
  if (!std::exchange(now_->refused, {}).empty()) {
    return say("Taken back: the question that was refused.");
  }
  if (!session().undo())
    return complain({ErrorCode::invalid_argument, "there is nothing to take back"});
  // Nothing new is left, and the file keeps what was taken back.
  if (is_in_file(*now_)) now_->unsaved = false;
  say("Taken back.");
}

void ChatLoop::retry(std::string_view) {
  // What was asked last is answered, also where it has no answer yet.
  if (!now_->refused.empty()) return answer(Turn::question, std::exchange(now_->refused, {}));
  answer(session().awaits_answer() ? Turn::as_it_stands : Turn::again);
}

void ChatLoop::edit(std::string_view text) {
  std::optional<std::string> written;
  const auto run = [&] { written = edit_text(std::string(text)); };
  if (input_) {
    input_->with_terminal_restored(run);
  } else {
    run();
  }
  if (!written) {
    // What was to be edited is not lost, and not sent either.
    if (input_) input_->set_text(std::string(text));
    return;
  }
  std::string edited = std::move(*written);
  if (edited.find_first_not_of(" \t\r\n") == std::string::npos)
    return say("Nothing was written, so nothing is sent.");
  if (interactive_) write_out(for_terminal(edited) + "\n");
  (void)history_.add(edited);  // the first failure was reported
  answer(Turn::question, std::move(edited));
}

void ChatLoop::apply_settings() {
  ChatEncodingOptions encoding = session().options().encoding;
  encoding.thinking = thinking_from_name(now_->settings.thinking);
  encoding.keep_thinking = now_->settings.keep_thinking;
  session().set_encoding(encoding);
  session().set_sampling(sampling_params(now_->settings, session().options().sampling.seed));
}

void ChatLoop::think(std::string_view argument) {
  const std::string effort = unquoted(argument);
  if (effort == "fold" || effort == "show") {
    fold_ = effort == "fold";
    return say(fold_ ? "Thinking is folded; Ctrl-T shows it." : "Thinking is shown.");
  }
  Settings changed = now_->settings;
  const auto [first, rest] = first_word(effort);
  const std::string level = unquoted(first);
  const auto [word, last] = first_word(level == "budget" ? std::string_view(effort) : rest);
  const std::string number = unquoted(last);
  if (!level.empty() && level != "budget") {
    // One that there is, and that this checkpoint has.
    if (auto known = effort_from_name(level, model_.efforts); !known) {
      return complain({known.error().code, "/think: " + known.error().message});
    }
    if (auto set = assign_text(changed, *find_setting("chat.thinking"), {&level, 1}); !set) {
      return complain({set.error().code, "/think: the effort " + set.error().message});
    }
  }
  if (word == "budget" && (number == "none" || number == "unset")) {
    changed.thinking_budget.reset();
  } else if (word == "budget") {
    if (auto set = assign_text(changed, *find_setting("chat.thinking_budget"), {&number, 1});
        !set) {
      return complain({set.error().code, "/think: the budget " + set.error().message});
    }
  } else if (!word.empty()) {
    return complain({ErrorCode::invalid_argument,
                     fmt::format("/think: \"{}\" is not understood; /help think shows how", word)});
  }
  now_->settings = std::move(changed);
  apply_settings();
  const auto budget = now_->settings.thinking_budget;
  tell(fmt::format(
      "thinking {}{}\n", now_->settings.thinking,
      budget ? fmt::format(", at most {}", counted(static_cast<std::uint64_t>(*budget), "token"))
             : ""));
}

void ChatLoop::show_settings() {
  for (const SettingSpec& spec : setting_specs()) {
    if (!is_session_setting(spec)) continue;
    tell(fmt::format("{:<20} {:<12} {}\n", short_name(spec), show(now_->settings, spec), spec.doc));
  }
}

void ChatLoop::set(std::string_view assignment) {
  if (assignment.empty()) return show_settings();
  const auto [name, value] = first_word(assignment);
  const SettingSpec* spec = find_session_setting(name);
  if (spec == nullptr) {
    return complain({ErrorCode::not_found,
                     fmt::format("/set: there is no setting \"{}\"; /set alone shows all", name)});
  }
  if (value.empty()) {
    return tell(fmt::format("{} = {}\n", name, show(now_->settings, *spec)));
  }
  const bool is_system = short_name(*spec) == "system";
  if (value != "unset" && short_name(*spec) == "thinking") return think(value);
  if (value != "unset" && is_system) return set_system(value);
  Settings changed = now_->settings;
  if (value == "unset") {
    unset(changed, *spec);
  } else if (auto typed = typed_words(*spec, value);
             !std::all_of(typed.begin(), typed.end(), [](const auto& t) { return is_utf8(t); })) {
    return complain({ErrorCode::invalid_argument,
                     fmt::format("/set: {} must be text in UTF-8, and the bytes of {} are not",
                                 name, cut_utf8(value, kMostShown))});
  } else if (auto set = assign_words(changed, *spec, typed); !set) {
    return complain({set.error().code, fmt::format("/set: {} {}", name, set.error().message)});
  }
  if (auto valid = check_sampling(changed, model_.engine->config()); !valid) {
    return complain(valid.error());
  }
  now_->settings = std::move(changed);
  apply_settings();
  if (is_system) session().set_system(now_->settings.system);
  say(fmt::format("{} = {}", name, show(now_->settings, *spec)));
}

void ChatLoop::stats(std::string_view argument) {
  const std::string on_or_off = unquoted(argument);
  if (on_or_off == "on" || on_or_off == "off") {
    show_stats_ = on_or_off == "on";
    return say(show_stats_ ? "A line after each answer." : "No line after an answer.");
  }
  if (!on_or_off.empty()) {
    return complain(
        {ErrorCode::invalid_argument, fmt::format("/stats: on or off, not \"{}\"", on_or_off)});
  }
  const TurnStats& totals = now_->totals;
  tell(fmt::format(
      "{} in {:.1f} s; prompts {} tokens, {} of them reused; thinking {}, answers {}\n",
      counted(static_cast<std::uint64_t>(now_->answers), "answer"), totals.total_s,
      totals.prompt_tokens, totals.reused_tokens, totals.thinking_tokens, totals.answer_tokens));
  const std::int64_t tokens = session().context_tokens(), limit = model_.engine->max_context();
  // A conversation that grew in a larger context.
  tell(tokens > limit
           ? fmt::format("context: {} tokens hold no conversation of {}\n", limit, tokens)
           : fmt::format("context: {} of {} tokens in use\n", tokens, limit));
}

void ChatLoop::tokens(std::string_view text) {
  // As the model gets it: what spells a control token is text.
  std::string_view shown = text;
  for (const ChatMessage& message : session().messages()) {
    if (text.empty() && message.role == Role::user) shown = message.content;
  }
  const std::vector<TokenId> ids = model_.tokenizer->encode(shown);
  tell(fmt::format("{}: {}\n", counted(ids.size(), "token"), fmt::join(ids, " ")));
}

void ChatLoop::quit(std::string_view) {
  leave_ = true;
}

Completions ChatLoop::complete(std::string_view before) const {
  return complete_chat_command(before, [this](ArgumentKind kind, std::string_view begun) {
    return argument_words(kind, begun);
  });
}

std::vector<std::string> ChatLoop::argument_words(ArgumentKind kind, std::string_view begun) const {
  std::vector<std::string> words;
  switch (kind) {
    case ArgumentKind::none:
    case ArgumentKind::text:
      break;
    case ArgumentKind::session:
      if (begun.find_first_of("/~\"'") != std::string_view::npos) {
        return file_completions(begun, options_.environment.home);
      }
      for (const auto& open : open_) {
        if (!open->name.empty()) words.push_back(open->name);
      }
      for (const SessionStore::Entry& entry : store_.list()) {
        if (std::find(words.begin(), words.end(), entry.name) == words.end()) {
          words.push_back(entry.name);
        }
      }
      break;
    case ArgumentKind::command:
      for (const ChatCommand& command : chat_commands())
        words.emplace_back(command.name.substr(begun.starts_with('/') ? 0 : 1));
      break;
    case ArgumentKind::effort:
      for (const std::string_view level : find_setting("chat.thinking")->choices) {
        if (check_effort(thinking_from_name(level), model_.efforts)) words.emplace_back(level);
      }
      words.insert(words.end(), {"budget", "fold", "show"});
      break;
    case ArgumentKind::setting:
      for (const SettingSpec& spec : setting_specs()) {
        if (is_session_setting(spec)) words.emplace_back(short_name(spec));
      }
      break;
    case ArgumentKind::file:
      words = file_completions(begun, options_.environment.home);
      break;
  }
  return words;
}

}  // namespace ingot
