// What the commands of a chat do.
#include <fmt/core.h>

#include <charconv>
#include <random>
#include <utility>

#include "src/cli/chat_loop.hpp"
#include "src/cli/standard_output.hpp"
#include "src/text/terminal_text.hpp"

namespace ingot {
namespace {

constexpr std::string_view kKeys =
    "\nA message of several lines: \\ at the end of a line, \"\"\" around it, Alt-Enter, or a "
    "paste.\n"
    "Ctrl-C ends an answer, Ctrl-R searches what you entered before, Ctrl-X Ctrl-E edits in "
    "$EDITOR.\n";

/// The settings that /set knows: those of sampling and thinking, by the last part of their keys.
bool is_session_setting(const SettingSpec& spec) {
  return spec.group == SettingGroup::sampling || spec.group == SettingGroup::chat;
}

std::string_view short_name(const SettingSpec& spec) {
  return spec.key.substr(spec.key.rfind('.') + 1);
}

const SettingSpec* find_session_setting(std::string_view name) {
  for (const SettingSpec& spec : setting_specs()) {
    if (is_session_setting(spec) && (short_name(spec) == name || spec.key == name)) return &spec;
  }
  return nullptr;
}

void unset(Settings& settings, const SettingSpec& spec) {
  const Settings defaults;
  std::visit([&](auto member) { settings.*member = defaults.*member; }, spec.member);
}

std::pair<std::string_view, std::string_view> first_word(std::string_view text) {
  const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
  const std::size_t next = std::min(text.find_first_not_of(" \t", end), text.size());
  return {text.substr(0, end), text.substr(next)};
}

}  // namespace

void ChatLoop::help(std::string_view command) {
  if (command.empty()) {
    write_out(chat_commands_help());
    write_out(kKeys);
    return;
  }
  const std::string name =
      command.starts_with('/') ? std::string(command) : fmt::format("/{}", command);
  if (const ChatCommand* found = find_chat_command(name)) {
    write_out(fmt::format("{} {}\n  {}\n", found->name, found->arguments, found->help));
  } else {
    complain({ErrorCode::not_found, fmt::format("{} is not a command; /help lists them", name)});
  }
}

void ChatLoop::begin_new(std::string_view) {
  session_.reset();
  say("A new conversation.");
}

void ChatLoop::undo(std::string_view) {
  say(session_.undo() ? "Taken back." : "There is nothing to take back.");
}

void ChatLoop::retry(std::string_view) {
  answer(Turn::again);
}

void ChatLoop::edit(std::string_view text) {
  std::string edited;
  const auto run = [&] { edited = edit_text(std::string(text)); };
  if (input_) {
    input_->with_terminal_restored(run);
  } else {
    run();
  }
  while (edited.ends_with('\n'))
    edited.pop_back();
  if (is_blank(edited)) return say("Nothing was written, so nothing is sent.");
  if (interactive_) write_out(for_terminal(edited) + "\n");
  (void)history_.add(edited);  // the first failure was reported
  answer(Turn::question, std::move(edited));
}

void ChatLoop::set_system(std::string_view text) {
  if (text.empty()) {
    write_out(settings_.system.empty() ? "There is no system message.\n"
                                       : for_terminal(settings_.system) + "\n");
    return;
  }
  settings_.system = text == "none" ? std::string() : std::string(text);
  session_.set_system(settings_.system);
  say(settings_.system.empty() ? "No system message any more." : "The system message is set.");
}

void ChatLoop::apply_settings() {
  ChatEncodingOptions encoding = session_.options().encoding;
  encoding.thinking = thinking_from_name(settings_.thinking);
  encoding.keep_thinking = settings_.keep_thinking;
  session_.set_encoding(encoding);
  session_.set_sampling(sampling_params(settings_, session_.options().sampling.seed));
}

void ChatLoop::think(std::string_view effort) {
  Settings changed = settings_;
  const auto [level, rest] = first_word(effort);
  const auto [word, number] = first_word(level == "budget" ? effort : rest);
  if (!level.empty() && level != "budget") {
    const std::string text(level);
    if (auto set = assign_text(changed, *find_setting("chat.thinking"), {&text, 1}); !set) {
      return complain({set.error().code, "/think: the effort " + set.error().message});
    }
    if (auto known = check_effort(thinking_from_name(level), model_.efforts); !known) {
      return complain(known.error());
    }
  }
  if (word == "budget" && (number == "none" || number == "unset")) {
    changed.thinking_budget.reset();
  } else if (word == "budget") {
    const std::string text(number);
    if (auto set = assign_text(changed, *find_setting("chat.thinking_budget"), {&text, 1}); !set) {
      return complain({set.error().code, "/think: the budget " + set.error().message});
    }
  } else if (!word.empty()) {
    return complain({ErrorCode::invalid_argument,
                     fmt::format("/think: \"{}\" is not understood; /help think shows how", word)});
  }
  settings_ = std::move(changed);
  apply_settings();
  const auto budget = settings_.thinking_budget;
  write_out(fmt::format("thinking {}{}\n", settings_.thinking,
                        budget ? fmt::format(", at most {} tokens", *budget) : ""));
}

void ChatLoop::show_settings() const {
  for (const SettingSpec& spec : setting_specs()) {
    if (!is_session_setting(spec)) continue;
    write_out(fmt::format("{:<20} {:<12} {}\n", short_name(spec),
                          for_terminal(show(settings_, spec)), spec.doc));
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
    return write_out(fmt::format("{} = {}\n", name, for_terminal(show(settings_, *spec))));
  }
  if (short_name(*spec) == "thinking") return think(value);
  if (short_name(*spec) == "system") return set_system(value);
  Settings changed = settings_;
  if (value == "unset") {
    unset(changed, *spec);
  } else if (auto* flag = std::get_if<bool Settings::*>(&spec->member)) {
    if (value != "true" && value != "false") {
      return complain({ErrorCode::invalid_argument,
                       fmt::format("/set: {} must be true or false, not \"{}\"", name, value)});
    }
    changed.** flag = value == "true";
  } else {
    const std::string text(value);
    if (auto set = assign_text(changed, *spec, {&text, 1}); !set) {
      return complain({set.error().code, fmt::format("/set: {} {}", name, set.error().message)});
    }
  }
  if (auto valid = check_sampling(changed, model_.engine->config()); !valid) {
    return complain(valid.error());
  }
  settings_ = std::move(changed);
  apply_settings();
  say(fmt::format("{} = {}", name, show(settings_, *spec)));
}

void ChatLoop::stats(std::string_view) {
  write_out(fmt::format(
      "{} answers in {:.1f} s; prompts {} tokens, {} of them reused; thinking {}, answers {}\n"
      "context: {} of {} tokens in use\n",
      turns_, totals_.total_s, totals_.prompt_tokens, totals_.reused_tokens,
      totals_.thinking_tokens, totals_.answer_tokens, session_.held_tokens(),
      model_.engine->max_context()));
}

void ChatLoop::tokens(std::string_view text) {
  std::string_view shown = text;
  for (const ChatMessage& message : session_.messages()) {
    if (text.empty()) shown = message.content;
  }
  const std::vector<TokenId> ids = model_.tokenizer->encode(shown);
  std::string line;
  for (const TokenId id : ids)
    line += (line.empty() ? "" : " ") + std::to_string(id);
  write_out(fmt::format("{} tokens: {}\n", ids.size(), line));
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
    case ArgumentKind::session:
      break;
    case ArgumentKind::command:
      for (const ChatCommand& command : chat_commands())
        words.emplace_back(command.name.substr(begun.starts_with('/') ? 0 : 1));
      break;
    case ArgumentKind::effort:
      for (const std::string_view level : find_setting("chat.thinking")->choices) {
        if (check_effort(thinking_from_name(level), model_.efforts)) words.emplace_back(level);
      }
      words.emplace_back("budget");
      break;
    case ArgumentKind::setting:
      for (const SettingSpec& spec : setting_specs()) {
        if (is_session_setting(spec)) words.emplace_back(short_name(spec));
      }
      break;
    case ArgumentKind::file:
      words = files_that_begin(begun);
      break;
  }
  return words;
}

}  // namespace ingot
