#include "src/chat/session_store.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/text/utf8.hpp"

namespace ingot {
namespace {

constexpr std::size_t kMostNameBytes = 100;

bool is_path(std::string_view name) {
  return name.find('/') != std::string_view::npos || name.ends_with(SessionStore::kExtension);
}

}  // namespace

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

std::vector<SessionStore::Entry> SessionStore::list() const {
  std::vector<Entry> entries;
  std::error_code error;
  std::filesystem::directory_iterator file(folder_, error);
  for (; !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
    const std::string name = file->path().filename().string();
    if (!name.ends_with(kExtension) || name.starts_with('.')) continue;
    std::error_code gone;
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
