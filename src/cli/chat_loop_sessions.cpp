// The sessions of a chat: several that are open, and those in files.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "runtime/base/log.hpp"
#include "src/chat/file_argument.hpp"
#include "src/checkpoint/problems.hpp"
#include "src/cli/chat_loop.hpp"
#include "src/cli/session_settings.hpp"

namespace ingot {
namespace {

/// As many hold state in the engine at once; the one that was not used for longest gives its own
/// back, and is fed again when it is returned to. Each takes up to five places of an engine's.
constexpr std::size_t kMostWithState = 4;

std::string date_of(std::filesystem::file_time_type time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(
      std::chrono::time_point_cast<std::chrono::system_clock::duration>(
          std::chrono::file_clock::to_sys(time)));
  std::tm local{};
  ::localtime_r(&seconds, &local);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local)};
}

std::string in_place_text(const ChatSession& session) {
  const auto tokens = static_cast<std::uint64_t>(session.held_tokens());
  return fmt::format("{} {} in place", counted(tokens, "token"), tokens == 1 ? "is" : "are");
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
    if (file && its && SessionStore::key_of(*file) == SessionStore::key_of(*its)) return open.get();
  }
  return nullptr;
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
  if (!before.session->begun()) return close_session(before);
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

void ChatLoop::say_what_waits() const {
  const std::int64_t tokens = session().context_tokens(), limit = model_.engine->max_context();
  if (tokens > limit) {
    log::warn(
        "the conversation takes {} tokens, and the context holds {}: /undo or /new make room, "
        "--context N gives more",
        tokens, limit);
  }
  if (const auto calls = session().open_calls(); !calls.empty()) {
    const std::string& name = calls[0].name;
    if (interactive_) return say(fmt::format("The last answer calls {}: enter its result.", name));
    return log::info(
        "the last answer calls {}; {}", name,
        options_.prompt ? "it goes without a result" : "what is read next is its result");
  }
  if (!session().awaits_answer() || is_retry_prompt(options_)) return;
  const bool begun = session().messages().back().role == Role::assistant;
  const std::string_view what =
      begun ? "the last answer is not finished" : "the last question has no answer yet";
  if (interactive_) {
    say(begun ? "The last answer is not finished: /retry goes on with it."
              : "The last question has no answer yet: /retry answers it, /undo takes it back.");
  } else if (options_.prompt) {
    log::info("{}; {}", what, begun ? "it ends there" : "it is asked together with the new one");
  } else {
    log::info("{}: /retry {}; a new question {}", what, begun ? "goes on with it" : "answers it",
              begun ? "lets it end there" : "is asked together with it");
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
  open.files[SessionStore::key_of(file)] = saved->checksum;
  if (auto loaded = open.session->restore_messages(saved->messages); !loaded) {
    const Error error = loaded.error();
    close_session(open);
    return refuse(error);
  }
  open.in_file = open.session->messages();
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
    state = in_place_text(*open.session);
    in_place = true;
  }
  const std::string line = fmt::format(
      "{}: {}, {}{}", open.name, counted(open.session->messages().size(), "message"), state, note);
  if (interactive_) {
    say(line + ".");
  } else if (!in_place || !note.empty()) {
    log::warn("the session {}", line);
  }
  return &open;
}

void ChatLoop::go_on_with(const std::string& name) {
  const auto file = value_or_throw(store_.file_of(name));
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(file, error))) {
    now_->name = name;
    return;
  }
  OpenSession* const opened = value_or_throw(open_saved(file, name));
  switch_to(*opened);
  close_session(*open_.front());
  prefer_flags();
  say_what_waits();
}

void ChatLoop::prefer_flags() {
  for (const SettingSpec* spec : options_.given) {
    const std::string saved = ingot::show(now_->settings, *spec);
    const std::string given = ingot::show(options_.settings, *spec);
    if (saved == given) continue;
    std::visit([&](auto member) { now_->settings.*member = options_.settings.*member; },
               spec->member);
    const bool refeeds = short_name(*spec) == "system" && session().held_tokens() > 0;
    log::info("the session {}: {} goes before what was saved, {} = {}{}", now_->name, spec->flag,
              short_name(*spec), saved, refeeds ? "; all of it is fed again at the next turn" : "");
  }
  value_or_throw(check_sampling(now_->settings, model_.engine->config()));
  apply_settings();
  (void)prefer_system_flag();
}

bool ChatLoop::prefer_system_flag() {
  const bool given = std::any_of(options_.given.begin(), options_.given.end(),
                                 [](const auto* s) { return short_name(*s) == "system"; });
  if (!given || session().system() == now_->settings.system) return false;
  session().set_system(now_->settings.system);
  return true;
}

void ChatLoop::begin_new(std::string_view argument) {
  const std::string name = file_argument(argument, options_.environment.home);
  if (!name.empty() && !may_be_called(name)) return;
  // A pipe that begins anew a million times keeps no million conversations.
  if (name.empty() && now_->name.empty() && (!interactive_ || !session().begun())) {
    session().reset();
    OpenSession empty;
    empty.settings = std::move(now_->settings);
    empty.session = std::move(now_->session);
    empty.used_at = now_->used_at;
    *now_ = std::move(empty);
    return say("A new conversation.");
  }
  std::vector<std::string> tools = session().options().tools;
  OpenSession& begun = add_session(name, now_->settings);
  if (!tools.empty()) begun.session->set_tools(std::move(tools));
  leave_for(begun);
  say("A new conversation.");
}

void ChatLoop::load(std::string_view argument) {
  if (argument.empty()) {
    return complain({ErrorCode::invalid_argument, "/load: which? /sessions lists them"});
  }
  const std::string name = file_argument(argument, options_.environment.home);
  if (OpenSession* const open = find_open(name)) {
    if (open != now_) {
      leave_for(*open);
    } else if (!open->unsaved && !open->files.empty() && session().messages() != open->in_file) {
      if (go_back_to_file()) say_what_waits();
      return;
    }
    say(fmt::format("{}: {}, {}.", name, counted(session().messages().size(), "message"),
                    in_place_text(session())));
    if (open->unsaved && !open->files.empty()) {
      say("It has turns that its file has not: /save writes them, /undo takes them back.");
    }
    return say_what_waits();
  }
  const auto file = store_.file_of(name);
  if (!file) return complain(file.error());
  const auto opened = open_saved(*file, name);
  if (!opened) {
    Error error = opened.error();
    const bool listed = error.code == ErrorCode::not_found && !SessionStore::is_path(name);
    if (listed) error.message += "; /sessions lists what there is";
    return complain(error);
  }
  leave_for(**opened);
  for (const SettingSpec* spec : options_.given) {
    const std::string saved = ingot::show(now_->settings, *spec);
    if (saved == ingot::show(options_.settings, *spec)) continue;
    const std::string line = fmt::format("{} has {} = {}, which goes before {}; /set changes it.",
                                         name, short_name(*spec), saved, spec->flag);
    if (interactive_) {
      say(line);
    } else {
      log::info("{}", line);
    }
  }
  say_what_waits();
}

bool ChatLoop::go_back_to_file() {
  OpenSession& before = *now_;
  const auto file = store_.file_of(before.name);
  const auto opened =
      file ? open_saved(*file, before.name) : Result<OpenSession*>(Unexpected(file.error()));
  if (!opened) {
    complain(opened.error());
    return false;
  }
  OpenSession& back = **opened;
  back.automatic = before.automatic;
  back.totals = before.totals;
  back.answers = before.answers;
  back.attached = std::move(before.attached);
  switch_to(back);
  close_session(before);
  return true;
}

void ChatLoop::sessions(std::string_view) {
  for (const auto& open : open_) {
    const std::size_t messages = open->session->messages().size();
    tell(fmt::format("{} {:<20} {:>4} {:<9} {:>6} tokens in place{}\n",
                     open.get() == now_ ? '*' : ' ', open->name.empty() ? "(no name)" : open->name,
                     messages, messages == 1 ? "message," : "messages,",
                     open->session->held_tokens(),
                     open->unsaved        ? ", not saved"
                     : is_cut_back(*open) ? ", saved with what was taken back"
                                          : ""));
  }
  for (const SessionStore::Entry& entry : store_.list()) {
    if (find_open(entry.name) != nullptr) continue;
    const auto file = store_.file_of(entry.name);
    const auto sound = file ? check_session_file(*file) : Result<void>(Unexpected(file.error()));
    std::string fault;
    if (!sound) {
      fault = fmt::format("; {}: {}",
                          sound.error().code == ErrorCode::corrupt ? "damaged" : "not to be read",
                          sound.error().message);
    }
    tell(fmt::format("  {:<20} saved {}, {} KiB{}\n", entry.name, date_of(entry.time),
                     (entry.bytes + 1023) / 1024, fault));
  }
}

void ChatLoop::fork(std::string_view argument) {
  const std::string name = file_argument(argument, options_.environment.home);
  if (!may_be_called(name)) return;
  auto copy = std::make_unique<OpenSession>();
  copy->name = name;
  copy->settings = now_->settings;
  copy->session = session().branch();
  copy->unsaved = true;
  const bool kept = !now_->name.empty() || session().begun();
  const OpenSession& before = *now_;
  leave_for(*open_.emplace_back(std::move(copy)));
  say(fmt::format("In \"{}\" now, a copy of {}.", name, kept ? before.name : "the empty one"));
  say_what_waits();
}

}  // namespace ingot
