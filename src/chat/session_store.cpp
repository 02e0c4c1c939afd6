#include "src/chat/session_store.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "runtime/base/atomic_publish.hpp"
#include "runtime/base/why_not.hpp"
#include "src/text/utf8.hpp"

namespace ingot {
namespace {

constexpr std::size_t kMostNameBytes = 100;
/// No writer takes as long.
constexpr std::chrono::seconds kTemporaryAge = std::chrono::hours(24);

}  // namespace

bool SessionStore::is_path(std::string_view name) {
  return name.find('/') != std::string_view::npos || name.ends_with(kExtension);
}

std::filesystem::path SessionStore::key_of(const std::filesystem::path& file) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(file, error);
  return (error ? file : absolute).lexically_normal();
}

Result<void> SessionStore::check_name(std::string_view name) {
  const bool sound = !name.empty() && name.size() <= kMostNameBytes && name[0] != '.' &&
                     name[0] != '-' && is_utf8(name) &&
                     std::none_of(name.begin(), name.end(), [](char c) {
                       return static_cast<unsigned char>(c) <= ' ' || c == '/' || c == 0x7F;
                     });
  if (sound) return {};
  return fail(ErrorCode::invalid_argument,
              fmt::format("\"{}\" is no name for a session: 1 to {} bytes, no blanks, no slash, no "
                          "dot or dash at the start",
                          cut_utf8(name, 60), kMostNameBytes));
}

Result<std::filesystem::path> SessionStore::file_of(std::string_view name) const {
  if (is_path(name)) return std::filesystem::path(name);
  if (auto named = check_name(name); !named) return Unexpected(named.error());
  if (folder_.empty()) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("there is no folder for the session \"{}\": set XDG_STATE_HOME or HOME "
                            "to a folder that exists, or give a path (./{}{})",
                            name, name, kExtension));
  }
  return folder_ / (std::string(name) + std::string(kExtension));
}

Result<void> SessionStore::make_folder_of(const std::filesystem::path& file) const {
  std::error_code error;
  if (folder_.empty() || file.parent_path() != folder_) return {};
  const bool made = std::filesystem::create_directories(folder_, error);
  if (error) {
    return fail(ErrorCode::io, fmt::format("creating the folder of sessions {}: {}",
                                           folder_.string(), why_not_written(error.value())));
  }
  if (made) std::filesystem::permissions(folder_, std::filesystem::perms::owner_all, error);
  return {};
}

void SessionStore::sweep_folder_of(const std::filesystem::path& file) const {
  if (folder_.empty() || file.parent_path() != folder_) return;
  (void)sweep_temporaries(folder_, kTemporaryAge);
}

std::string SessionStore::numbered(std::string_view name, int number) {
  std::string_view end;
  if (name.ends_with(kExtension)) end = kExtension;
  name.remove_suffix(end.size());
  return fmt::format("{}-{}{}", name, number, end);
}

std::string SessionStore::automatic_name() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d", &local)};
}

std::vector<SessionStore::Entry> SessionStore::list() const {
  std::vector<Entry> entries;
  std::error_code error;
  std::filesystem::directory_iterator file(folder_, error);
  for (; !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
    const std::string name = file->path().filename().string();
    if (!name.ends_with(kExtension) || name.starts_with('.')) continue;
    std::error_code gone;
    if (!file->is_regular_file(gone)) continue;
    Entry entry{name.substr(0, name.size() - kExtension.size()), file->file_size(gone),
                file->last_write_time(gone)};
    if (!gone) entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.time != b.time ? a.time > b.time : a.name < b.name;
  });
  return entries;
}

}  // namespace ingot
