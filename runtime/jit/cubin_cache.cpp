#include "runtime/jit/cubin_cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <system_error>

#include "runtime/base/atomic_publish.hpp"

namespace ingot::jit {
namespace {

constexpr std::string_view kSuffix = ".kernel";
/// A hit renews an entry's time of last use at most this often, so that reading hardly ever writes.
constexpr std::chrono::seconds kTouchEvery = std::chrono::hours(24);

std::string name_without_compiler(const Manifest& manifest) {
  return fmt::format("{}-{}-{}-", manifest.family, manifest.arch, manifest.kernel_key());
}

std::chrono::system_clock::time_point modified(const struct stat& status) {
  return std::chrono::system_clock::from_time_t(status.st_mtime);
}

void touch_if_old(const std::filesystem::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return;
  if (std::chrono::system_clock::now() - modified(status) < kTouchEvery) return;
  (void)::utimensat(AT_FDCWD, file.c_str(), nullptr, 0);  // a read-only layer stays as it is
}

std::vector<CubinCache::File> files_starting_with(const std::filesystem::path& directory,
                                                  std::string_view prefix) {
  std::vector<CubinCache::File> found;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(directory, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(kSuffix) || is_temporary_name(name)) continue;
    struct stat status {};
    if (::stat(entry->path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    found.push_back({entry->path(), static_cast<std::uint64_t>(status.st_size), modified(status)});
  }
  return found;
}

}  // namespace

std::string CubinCache::file_name(const Manifest& manifest) {
  return fmt::format("{}{}{}", name_without_compiler(manifest), manifest.compiler_key(), kSuffix);
}

Result<CacheEntry> CubinCache::read(const std::filesystem::path& file) {
  const auto bytes = read_whole_file(file);
  if (!bytes) return tl::unexpected(bytes.error());
  auto entry = decode_entry(*bytes, file.string());
  if (entry && file_name(entry->manifest) != file.filename().string()) {
    return fail(ErrorCode::corrupt,
                fmt::format("kernel cache entry {}: it belongs under the name {}", file.string(),
                            file_name(entry->manifest)));
  }
  return entry;
}

Result<CacheEntry> CubinCache::find(const Manifest& wanted) const {
  const auto file = directory_ / file_name(wanted);
  auto entry = read(file);
  if (!entry) return entry;
  if (entry->manifest != wanted) {  // two manifests with one digest: the text decides
    return fail(ErrorCode::not_found,
                fmt::format("{} holds another kernel of the same digest", file.string()));
  }
  touch_if_old(file);
  return entry;
}

Result<CacheEntry> CubinCache::find_any_compiler(const Manifest& wanted) const {
  const std::string prefix = name_without_compiler(wanted);
  std::vector<File> matching = files_starting_with(directory_, prefix);
  std::sort(matching.begin(), matching.end(),
            [](const File& a, const File& b) { return a.last_used > b.last_used; });
  for (const File& file : matching) {
    auto entry = read(file.path);
    if (!entry || entry->is_barred()) continue;
    Manifest alike = entry->manifest;
    alike.compiler = wanted.compiler;
    if (alike == wanted) return entry;
  }
  return fail(ErrorCode::not_found, fmt::format("no entry for {} in {}", describe(wanted.variant()),
                                                directory_.string()));
}

Result<void> CubinCache::publish(const CacheEntry& entry) const {
  return publish_file(directory_ / file_name(entry.manifest), encode_entry(entry));
}

std::vector<CubinCache::File> CubinCache::files() const {
  std::vector<File> found = files_starting_with(directory_, "");
  std::sort(found.begin(), found.end(),
            [](const File& a, const File& b) { return a.path < b.path; });
  return found;
}

CubinCache::GcResult CubinCache::collect(const GcPolicy& policy) const {
  GcResult result;
  result.temporaries = sweep_temporaries(directory_, policy.temporary_age);
  std::vector<File> all = files();
  std::sort(all.begin(), all.end(),
            [](const File& a, const File& b) { return a.last_used > b.last_used; });
  const auto now = std::chrono::system_clock::now();
  for (const File& file : all) {
    const auto entry = read(file.path);
    const bool damaged = !entry && entry.error().code == ErrorCode::corrupt;
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

}  // namespace ingot::jit
