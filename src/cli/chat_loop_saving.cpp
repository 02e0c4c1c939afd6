// What a chat saves: when it is told to, and when it ends.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "runtime/base/log.hpp"
#include "src/chat/file_argument.hpp"
#include "src/checkpoint/problems.hpp"
#include "src/cli/chat_loop.hpp"
#include "src/cli/session_settings.hpp"

namespace ingot {
namespace {

/// As many names are tried for a conversation whose own name is taken.
constexpr int kMostNames = 10000;

}  // namespace

SessionStore session_store(const Environment& environment) {
  if (environment.state_home.empty()) return SessionStore({});
  return SessionStore(environment.state_home / "ingot" / "sessions");
}

Result<void> check_session(const ChatOptions& options) {
  if (options.session.empty()) return {};
  const auto file = session_store(options.environment)
                        .file_of(with_home(options.session, options.environment.home));
  if (!file) return Unexpected(file.error());
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(*file, error))) {
    const std::filesystem::path folder = file->parent_path();
    if (SessionStore::is_path(options.session) && !folder.empty() &&
        !std::filesystem::is_directory(folder, error)) {
      return fail(ErrorCode::not_found,
                  fmt::format("--session {}: there is no folder {}; make it first, or name another",
                              options.session, folder.string()));
    }
    return {};
  }
  if (options.conversation.empty()) return {};
  return fail(
      ErrorCode::invalid_argument,
      fmt::format("--session {} --conversation {}: a session is saved in {} already, and is not "
                  "replaced; leave --conversation out to go on with it, or name another --session",
                  options.session, options.conversation.string(), file->string()));
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

Result<std::string> ChatLoop::save_as(OpenSession& open, const std::filesystem::path& file,
                                      const SaveOptions& how) {
  SavedSession saved;
  saved.model = model_.name;
  saved.fingerprint = model_.fingerprint;
  saved.settings = session_settings(open.settings);
  saved.messages = open.session->messages();
  if (!how.without_state) saved.sequences = open.session->save_sequences();
  MayReplace replace{.any_session = how.any_session};
  const auto known = open.files.find(SessionStore::key_of(file));
  if (known != open.files.end()) replace.known = known->second;
  if (auto made = store_.make_folder_of(file); !made) return Unexpected(made.error());
  store_.sweep_folder_of(file);
  const auto written = write_session(file, saved, replace);
  if (!written) return Unexpected(written.error());
  open.files[SessionStore::key_of(file)] = *written;
  open.unsaved = false;
  open.in_file = std::move(saved.messages);
  const std::int64_t tokens = open.session->held_tokens();
  return fmt::format("{}, {}", counted(open.in_file.size(), "message"),
                     tokens > 0 && saved.sequences.empty()
                         ? "without state, which this engine keeps in no file"
                         : counted(static_cast<std::uint64_t>(tokens), "token"));
}

bool ChatLoop::save_on_leaving(Leaving leaving) {
  interrupt_.leave();
  if (options_.private_mode) return true;
  bool all = true;
  for (const auto& open : open_) {
    if (!open->unsaved) {
      if (leaving != Leaving::unheard && is_cut_back(*open)) {
        log::info(
            "the session \"{}\" stays saved with what was taken back; /save writes it without",
            open->name);
      }
      continue;
    }
    const bool chosen = !open->name.empty() && !open->automatic;
    // What the end of a pipe leaves without a name is done with; what is cut short is not, but for
    // one question, which the shell's history has.
    const bool at_its_end =
        (leaving == Leaving::as_asked || options_.prompt) && interrupt_.requested() == 0;
    if (!chosen && !interactive_ && at_its_end) continue;
    if (!chosen && open->files.empty() && !open->session->begun()) continue;
    if (!save_on_leaving(*open, leaving) && chosen) all = false;
  }
  return all;
}

bool ChatLoop::save_on_leaving(OpenSession& open, Leaving leaving) {
  const std::string name =
      open.name.empty() ? free_name(SessionStore::automatic_name()) : open.name;
  std::string used = name;
  Result<std::string> saved = fail(ErrorCode::io, {});
  std::optional<Error> in_the_way;
  for (int number = 2; number < kMostNames; ++number) {
    const auto file = store_.file_of(used);
    saved = file ? save_in_any_case(open, *file) : Result<std::string>(Unexpected(file.error()));
    // Another program has written there meanwhile: both are kept.
    if (saved || !file || saved.error().code != ErrorCode::invalid_argument) break;
    if (!in_the_way) in_the_way = saved.error();
    used = SessionStore::numbered(name, number);
  }
  if (leaving == Leaving::unheard) return saved.has_value();
  if (!saved) {
    log::warn("the conversation{} is not saved: {}",
              open.name.empty() ? "" : fmt::format(" \"{}\"", open.name), saved.error().message);
    return false;
  }
  if (in_the_way && !open.name.empty()) log::warn("{}", in_the_way->message);
  log::info("the session is saved as \"{}\"{}", used,
            open.name.empty() || used != name
                ? fmt::format("; ingot chat --session {} goes on with it", used)
                : "");
  return true;
}

bool ChatLoop::is_in_file(const OpenSession& open) {
  const auto& left = open.session->messages();
  return !open.files.empty() && left.size() <= open.in_file.size() &&
         std::equal(left.begin(), left.end(), open.in_file.begin());
}

bool ChatLoop::is_cut_back(const OpenSession& open) {
  return is_in_file(open) && open.session->messages().size() < open.in_file.size();
}

Result<std::string> ChatLoop::save_in_any_case(OpenSession& open,
                                               const std::filesystem::path& file) {
  try {
    return save_as(open, file);
  } catch (const std::exception& error) {
    // An engine that has failed gives its state no more; what was said is worth more.
    log::warn("the state of the engine is not saved: {}", error.what());
  }
  try {
    return save_as(open, file, {.without_state = true});
  } catch (const std::exception& error) {
    return fail(ErrorCode::io, error.what());
  }
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
  const std::string target =
      name.empty() ? now_->name : file_argument(name, options_.environment.home);
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
  const auto saved = save_as(*now_, *file, {.any_session = force});
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

}  // namespace ingot
