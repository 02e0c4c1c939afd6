// The sessions of a chat: several that are open, and those in files.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "runtime/base/log.hpp"
#include "src/cli/chat_loop.hpp"
#include "src/cli/session_settings.hpp"
#include "src/cli/standard_output.hpp"
#include "src/text/terminal_text.hpp"

namespace ingot {
namespace {

/// As many hold state in the engine at once; the one that was not used for longest gives its own
/// back, and is fed again when it is returned to. Each takes up to five places of an engine's.
constexpr std::size_t kMostWithState = 4;

/// What a session without a name is saved as when the program ends.
constexpr std::string_view kUnnamedTerminal = "last";
constexpr std::string_view kUnnamedPipe = "last-piped";

std::string date_of(std::filesystem::file_time_type time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(
      std::chrono::time_point_cast<std::chrono::system_clock::duration>(
          std::chrono::file_clock::to_sys(time)));
  std::tm local{};
  ::localtime_r(&seconds, &local);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local)};
}

}  // namespace

OpenSession& ChatLoop::add_session(std::string name, Settings settings) {
  auto open = std::make_unique<OpenSession>();
  open->name = std::move(name);
  open->settings = std::move(settings);
  open->session = std::make_unique<ChatSession>(*model_.engine, *model_.tokenizer,
                                                session_options(open->settings, model_));
  return *open_.emplace_back(std::move(open));
}

OpenSession* ChatLoop::find_open(std::string_view name) {
  for (const auto& open : open_) {
    if (open->name == name) return open.get();
  }
  return nullptr;
}

void ChatLoop::switch_to(OpenSession& open) {
  now_ = &open;
  open.used_at = ++switches_;
  std::vector<OpenSession*> by_use;
  for (const auto& each : open_)
    by_use.push_back(each.get());
  std::sort(by_use.begin(), by_use.end(),
            [](const OpenSession* a, const OpenSession* b) { return a->used_at > b->used_at; });
  for (std::size_t i = kMostWithState; i < by_use.size(); ++i)
    by_use[i]->session->release_state();
}

bool ChatLoop::release_other_sessions() {
  bool any = false;
  for (const auto& open : open_) {
    if (open.get() == now_ || open->session->held_tokens() == 0) continue;
    open->session->release_state();
    any = true;
  }
  return any;
}

void ChatLoop::close_session(const OpenSession& open) {
  std::erase_if(open_, [&](const auto& each) { return each.get() == &open; });
}

Result<std::string> ChatLoop::save_as(OpenSession& open, const std::filesystem::path& file) {
  SavedSession saved;
  saved.model = model_.name;
  saved.fingerprint = model_.fingerprint;
  saved.settings = session_settings(open.settings);
  saved.messages = open.session->messages();
  saved.sequences = open.session->save_sequences();
  if (auto written = write_session(file, saved); !written) return Unexpected(written.error());
  open.unsaved = false;
  const std::int64_t tokens = open.session->held_tokens();
  return fmt::format("{} messages, {}", saved.messages.size(),
                     tokens > 0 && saved.sequences.empty()
                         ? "without state, which this engine keeps in no file"
                         : fmt::format("{} tokens", tokens));
}

void ChatLoop::save_on_leaving(bool quietly) {
  if (options_.private_mode || !store_.has_folder()) return;
  for (const auto& open : open_) {
    const bool unnamed = open->name.empty();
    if (!open->unsaved || (unnamed && open.get() != now_)) continue;
    const std::string name =
        unnamed ? std::string(interactive_ ? kUnnamedTerminal : kUnnamedPipe) : open->name;
    const auto file = store_.file_of(name);
    if (!file) continue;
    const auto saved = save_as(*open, *file);
    if (quietly) continue;
    if (saved) {
      log::info("the session is saved as \"{}\"", name);
    } else {
      log::warn("{}", saved.error().message);
    }
  }
}

Result<OpenSession*> ChatLoop::open_saved(const std::filesystem::path& file, std::string name) {
  const auto saved = read_session(file);
  if (!saved) return Unexpected(saved.error());
  const auto refuse = [&](const Error& error) {
    return fail(error.code,
                fmt::format("reading the session {}: {}", file.string(), error.message));
  };
  Settings settings = options_.settings;
  if (auto applied = apply_session_settings(settings, saved->settings); !applied) {
    return refuse(applied.error());
  }
  const bool same_model = saved->fingerprint == model_.fingerprint;
  std::string note;
  if (!check_effort(thinking_from_name(settings.thinking), model_.efforts)) {
    note =
        fmt::format("; this model has no effort \"{}\", so it does not think", settings.thinking);
    settings.thinking = "none";
  }
  OpenSession& open = add_session(std::move(name), std::move(settings));
  if (auto loaded = open.session->restore_messages(saved->messages); !loaded) {
    const Error error = loaded.error();
    close_session(open);
    return refuse(error);
  }
  std::string state;
  if (!same_model) {
    state = fmt::format("it was saved with another model ({}), so it is fed again at the next turn",
                        saved->model);
  } else if (saved->sequences.empty()) {
    state = "its file has no state of the engine, so it is fed again at the next turn";
  } else if (auto restored = open.session->restore_sequences(saved->sequences); !restored) {
    state = fmt::format("{}; it is fed again at the next turn", restored.error().message);
  } else {
    state = fmt::format("{} tokens are in place", open.session->held_tokens());
  }
  say(fmt::format("{}: {} messages, {}{}.", open.name.empty() ? file.string() : open.name,
                  open.session->messages().size(), state, note));
  return &open;
}

void ChatLoop::go_on_with(const std::string& name) {
  value_or_throw(SessionStore::check_name(name));
  const auto file = value_or_throw(store_.file_of(name));
  keep_ = true;
  std::error_code error;
  if (!std::filesystem::exists(file, error)) {
    now_->name = name;
    return;
  }
  OpenSession* const opened = value_or_throw(open_saved(file, name));
  switch_to(*opened);
  close_session(*open_.front());
}

void ChatLoop::begin_new(std::string_view name) {
  if (!name.empty()) {
    if (auto named = SessionStore::check_name(name); !named) return complain(named.error());
    if (find_open(name) != nullptr) {
      return complain({ErrorCode::invalid_argument,
                       fmt::format("a session \"{}\" is open; /load goes there", name)});
    }
  } else if (now_->name.empty()) {
    session().reset();
    now_->unsaved = false;
    return say("A new conversation.");
  }
  Settings settings = now_->settings;
  switch_to(add_session(std::string(name), std::move(settings)));
  say("A new conversation.");
}

void ChatLoop::save(std::string_view name) {
  const std::string target(name.empty() ? std::string_view(now_->name) : name);
  if (target.empty()) {
    return complain({ErrorCode::invalid_argument, "/save: this session has no name yet; give one"});
  }
  const auto file = store_.file_of(target);
  if (!file) return complain(file.error());
  const bool is_name = SessionStore::check_name(target) && !target.ends_with(store_.kExtension);
  OpenSession* const other = is_name ? find_open(target) : nullptr;
  if (other != nullptr && other != now_) {
    return complain({ErrorCode::invalid_argument,
                     fmt::format("another open session is called \"{}\"", target)});
  }
  const auto saved = save_as(*now_, *file);
  if (!saved) return complain(saved.error());
  if (is_name) now_->name = target;
  say(fmt::format("Saved as {}: {}.", is_name ? target : file->string(), *saved));
}

void ChatLoop::load(std::string_view name) {
  if (name.empty()) {
    return complain({ErrorCode::invalid_argument, "/load: which? /sessions lists them"});
  }
  if (OpenSession* const open = find_open(name)) {
    switch_to(*open);
    return say(fmt::format("{}: {} messages, {} tokens are in place.", name,
                           session().messages().size(), session().held_tokens()));
  }
  const auto file = store_.file_of(name);
  if (!file) return complain(file.error());
  const bool is_name = SessionStore::check_name(name) && !name.ends_with(store_.kExtension);
  const auto opened = open_saved(*file, is_name ? std::string(name) : std::string());
  if (!opened) return complain(opened.error());
  switch_to(**opened);
}

void ChatLoop::sessions(std::string_view) {
  for (const auto& open : open_) {
    write_out(fmt::format("{} {:<20} {:>4} messages, {:>6} tokens in place{}\n",
                          open.get() == now_ ? '*' : ' ',
                          for_terminal(open->name.empty() ? "(no name)" : open->name),
                          open->session->messages().size(), open->session->held_tokens(),
                          open->unsaved ? ", not saved" : ""));
  }
  for (const SessionStore::Entry& entry : store_.list()) {
    if (find_open(entry.name) != nullptr) continue;
    write_out(fmt::format("  {:<20} saved {}, {} KiB\n", for_terminal(entry.name),
                          date_of(entry.time), (entry.bytes + 1023) / 1024));
  }
}

void ChatLoop::fork(std::string_view name) {
  if (auto named = SessionStore::check_name(name); !named) return complain(named.error());
  if (find_open(name) != nullptr) {
    return complain(
        {ErrorCode::invalid_argument, fmt::format("a session \"{}\" is open already", name)});
  }
  auto copy = std::make_unique<OpenSession>();
  copy->name = name;
  copy->settings = now_->settings;
  copy->session = session().branch();
  copy->unsaved = true;
  const std::string from = now_->name.empty() ? "the one before" : now_->name;
  switch_to(*open_.emplace_back(std::move(copy)));
  say(fmt::format("In \"{}\" now, a copy of {}.", name, from));
}

}  // namespace ingot
