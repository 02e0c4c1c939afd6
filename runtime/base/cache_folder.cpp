#include "runtime/base/cache_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <system_error>

#include "runtime/base/atomic_publish.hpp"

namespace ingot {
namespace {

constexpr std::chrono::seconds kTouchEvery = std::chrono::hours(24);

std::chrono::system_clock::time_point modified(const struct stat& status) {
  return std::chrono::system_clock::from_time_t(status.st_mtime);
}

}  // namespace

std::vector<CacheFile> cache_files(const std::filesystem::path& directory, std::string_view prefix,
                                   std::string_view suffix) {
  std::vector<CacheFile> found;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(directory, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(suffix) || is_temporary_name(name)) continue;
    struct stat status {};
    if (::stat(entry->path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    found.push_back({entry->path(), static_cast<std::uint64_t>(status.st_size), modified(status)});
  }
  std::sort(found.begin(), found.end(),
            [](const CacheFile& a, const CacheFile& b) { return a.path < b.path; });
  return found;
}

void mark_used(const std::filesystem::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return;
  if (std::chrono::system_clock::now() - modified(status) < kTouchEvery) return;
  (void)::utimensat(AT_FDCWD, file.c_str(), nullptr, 0);
}

GcResult collect_garbage(const std::filesystem::path& directory, std::string_view suffix,
                         const GcPolicy& policy,
                         const std::function<bool(const std::filesystem::path&)>& is_damaged) {
  GcResult result;
  result.temporaries = sweep_temporaries(directory, policy.temporary_age);
  std::vector<CacheFile> all = cache_files(directory, "", suffix);
  std::stable_sort(all.begin(), all.end(), [](const CacheFile& a, const CacheFile& b) {
    return a.last_used > b.last_used;
  });
  const auto now = std::chrono::system_clock::now();
  for (const CacheFile& file : all) {
    const bool damaged = is_damaged(file.path);
    const bool keep = !damaged && now - file.last_used <= policy.most_age &&
                      result.kept_bytes + file.bytes <= policy.most_bytes;
    if (keep) {
      ++result.kept;
      result.kept_bytes += file.bytes;
      continue;
    }
    std::error_code error;
    if (!std::filesystem::remove(file.path, error) || error)
      continue;  // another process was faster
    ++result.removed;
    result.removed_bytes += file.bytes;
    if (damaged) ++result.damaged;
  }
  return result;
}

}  // namespace ingot
