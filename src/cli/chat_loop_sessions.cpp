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

/// As many names are tried for a conversation whose own name is taken.
constexpr int kMostNames = 10000;

/// One file has one key, whatever way it was named.
std::filesystem::path key_of(const std::filesystem::path& file) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(file, error);
  return (error ? file : absolute).lexically_normal();
}

bool has_question(const ChatSession& session) {
  const auto& messages = session.messages();
  return std::any_of(messages.begin(), messages.end(),
                     [](const ChatMessage& m) { return m.role != Role::system; });
}

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
  const auto file = store_.file_of(name);
  for (const auto& open : open_) {
    if (open->name.empty()) continue;
    if (open->name == name) return open.get();
    const auto its = store_.file_of(open->name);
    if (file && its && key_of(*file) == key_of(*its)) return open.get();
  }
  return nullptr;
}

std::string ChatLoop::free_name(const std::string& name) const {
  std::string free = name;
  for (int number = 2; number < kMostNames; ++number) {
    const auto file = store_.file_of(free);
    std::error_code error;
    const bool taken =
        (file && std::filesystem::exists(std::filesystem::symlink_status(*file, error))) ||
        std::any_of(open_.begin(), open_.end(), [&](const auto& o) { return o->name == free; });
    if (!taken) break;
    free = SessionStore::numbered(name, number);
  }
  return free;
}

bool ChatLoop::may_be_called(std::string_view name) {
  if (auto named = SessionStore::check_name(name); !named) {
    complain(named.error());
    return false;
  }
  const auto file = store_.file_of(name);
  std::error_code error;
  const bool open = find_open(name) != nullptr;
  const bool saved = file && std::filesystem::exists(*file, error);
  if (!open && !saved) return true;
  complain({ErrorCode::invalid_argument,
            fmt::format("a session \"{}\" is {} already: /load goes there; or choose another name",
                        name, open ? "open" : "saved")});
  return false;
}

void ChatLoop::leave_for(OpenSession& open) {
  OpenSession& before = *now_;
  switch_to(open);
  if (!before.name.empty()) return;
  if (!has_question(*before.session)) return close_session(before);
  before.name = free_name(SessionStore::automatic_name());
  before.automatic = true;
  say(fmt::format("The conversation before is called \"{}\" now; /load {} goes back to it.",
                  before.name, before.name));
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

Result<std::string> ChatLoop::save_as(OpenSession& open, const std::filesystem::path& file,
                                      bool any_session) {
  SavedSession saved;
  saved.model = model_.name;
  saved.fingerprint = model_.fingerprint;
  saved.settings = session_settings(open.settings);
  saved.messages = open.session->messages();
  saved.sequences = open.session->save_sequences();
  MayReplace replace{.any_session = any_session};
  const auto known = open.files.find(key_of(file));
  if (known != open.files.end()) replace.known = known->second;
  if (auto made = store_.make_folder_of(file); !made) return Unexpected(made.error());
  const auto written = write_session(file, saved, replace);
  if (!written) return Unexpected(written.error());
  open.files[key_of(file)] = *written;
  open.unsaved = false;
  const std::int64_t tokens = open.session->held_tokens();
  return fmt::format("{} messages, {}", saved.messages.size(),
                     tokens > 0 && saved.sequences.empty()
                         ? "without state, which this engine keeps in no file"
                         : fmt::format("{} tokens", tokens));
}

void ChatLoop::save_on_leaving(bool quietly) {
  if (options_.private_mode) return;
  for (const auto& open : open_) {
    if (!open->unsaved) continue;
    const bool chosen = !open->name.empty() && !open->automatic;
    // What the end of a pipe leaves without a name is done with; what a signal interrupts is not.
    if (!chosen && !interactive_ && interrupt_.requested() == 0 && !quietly) continue;
    if (!chosen && open->files.empty() && !has_question(*open->session)) continue;
    save_on_leaving(*open, quietly);
  }
}

void ChatLoop::save_on_leaving(OpenSession& open, bool quietly) {
  const std::string name =
      open.name.empty() ? free_name(SessionStore::automatic_name()) : open.name;
  std::string used = name;
  Result<std::string> saved = fail(ErrorCode::io, {});
  std::optional<Error> in_the_way;
  for (int number = 2; number < kMostNames; ++number) {
    const auto file = store_.file_of(used);
    saved = file ? save_as(open, *file) : Result<std::string>(Unexpected(file.error()));
    // Another program has written there meanwhile: both are kept.
    if (saved || !file || saved.error().code != ErrorCode::invalid_argument) break;
    if (!in_the_way) in_the_way = saved.error();
    used = SessionStore::numbered(name, number);
  }
  if (quietly) return;
  if (!saved) {
    log::warn("the conversation{} is not saved: {}",
              open.name.empty() ? "" : fmt::format(" \"{}\"", open.name), saved.error().message);
    return;
  }
  if (in_the_way && !open.name.empty()) log::warn("{}", in_the_way->message);
  log::info("the session is saved as \"{}\"{}", for_terminal(used),
            open.name.empty() || used != name
                ? fmt::format("; ingot chat --session {} goes on with it", for_terminal(used))
                : "");
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
  open.files[key_of(file)] = saved->checksum;
  if (auto loaded = open.session->restore_messages(saved->messages); !loaded) {
    const Error error = loaded.error();
    close_session(open);
    return refuse(error);
  }
  std::string state;
  bool in_place = false;
  if (!same_model) {
    state = fmt::format("it was saved with another model ({}), so it is fed again at the next turn",
                        saved->model);
  } else if (saved->sequences.empty()) {
    state = "its file has no state of the engine, so it is fed again at the next turn";
  } else if (auto restored = open.session->restore_sequences(saved->sequences); !restored) {
    state = fmt::format("{}; it is fed again at the next turn", restored.error().message);
  } else {
    state = fmt::format("{} tokens are in place", open.session->held_tokens());
    in_place = true;
  }
  const std::string line =
      fmt::format("{}: {} messages, {}{}", open.name, open.session->messages().size(), state, note);
  if (interactive_) {
    say(line + ".");
  } else if (!in_place || !note.empty()) {
    log::warn("the session {}", for_terminal(line));
  }
  return &open;
}

void ChatLoop::go_on_with(const std::string& name) {
  value_or_throw(SessionStore::check_name(name));
  const auto file = value_or_throw(store_.file_of(name));
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
  if (!name.empty() && !may_be_called(name)) return;
  // A pipe that begins anew a million times keeps no million conversations.
  if (name.empty() && now_->name.empty() && (!interactive_ || !has_question(session()))) {
    session().reset();
    now_->unsaved = false;
    return say("A new conversation.");
  }
  std::vector<std::string> tools = session().options().tools;
  OpenSession& begun = add_session(std::string(name), now_->settings);
  if (!tools.empty()) begun.session->set_tools(std::move(tools));
  leave_for(begun);
  say("A new conversation.");
}

void ChatLoop::save(std::string_view argument) {
  constexpr std::string_view kForce = "--force";
  bool force = false;
  std::string_view name = argument;
  if (name == kForce || name.starts_with("--force ")) {
    force = true;
    name.remove_prefix(kForce.size());
    name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
  }
  const std::string target(name.empty() ? std::string_view(now_->name) : name);
  if (target.empty()) {
    return complain({ErrorCode::invalid_argument, "/save: this session has no name yet; give one"});
  }
  const auto file = store_.file_of(target);
  if (!file) return complain(file.error());
  OpenSession* const other = find_open(target);
  if (other != nullptr && other != now_) {
    return complain({ErrorCode::invalid_argument,
                     fmt::format("another open session is called \"{}\"", target)});
  }
  const auto saved = save_as(*now_, *file, force);
  if (!saved) {
    Error error = saved.error();
    if (error.code == ErrorCode::invalid_argument && !force) {
      error.message += fmt::format(
          "; /save with another name keeps both, /save --force {} replaces "
          "a session",
          target);
    }
    return complain(error);
  }
  const bool is_name = !SessionStore::is_path(target);
  // A copy that lies somewhere else does not change what a session is called.
  if (is_name || now_->name.empty() || now_->automatic) {
    now_->name = target;
    now_->automatic = false;
  }
  say(fmt::format("Saved as {}: {}.", target, *saved));
}

void ChatLoop::load(std::string_view name) {
  if (name.empty()) {
    return complain({ErrorCode::invalid_argument, "/load: which? /sessions lists them"});
  }
  if (OpenSession* const open = find_open(name)) {
    if (open != now_) leave_for(*open);
    return say(fmt::format("{}: {} messages, {} tokens are in place.", name,
                           session().messages().size(), session().held_tokens()));
  }
  const auto file = store_.file_of(name);
  if (!file) return complain(file.error());
  const auto opened = open_saved(*file, std::string(name));
  if (!opened) return complain(opened.error());
  leave_for(**opened);
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
  if (!may_be_called(name)) return;
  auto copy = std::make_unique<OpenSession>();
  copy->name = name;
  copy->settings = now_->settings;
  copy->session = session().branch();
  copy->unsaved = true;
  const bool kept = !now_->name.empty() || has_question(session());
  const OpenSession& before = *now_;
  leave_for(*open_.emplace_back(std::move(copy)));
  say(fmt::format("In \"{}\" now, a copy of {}.", name, kept ? before.name : "the empty one"));
}

}  // namespace ingot
