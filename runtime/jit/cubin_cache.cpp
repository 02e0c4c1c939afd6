#include "runtime/jit/cubin_cache.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/atomic_publish.hpp"
#include "runtime/base/cache_folder.hpp"

namespace ingot::jit {
namespace {

constexpr std::string_view kSuffix = ".kernel";

std::string name_without_compiler(const Manifest& manifest) {
  return fmt::format("{}-{}-{}-", manifest.family, manifest.arch, manifest.kernel_key());
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
  mark_used(file);
  return entry;
}

Result<CacheEntry> CubinCache::find_any_compiler(const Manifest& wanted) const {
  const std::string prefix = name_without_compiler(wanted);
  std::vector<CacheFile> matching = cache_files(directory_, prefix, kSuffix);
  std::sort(matching.begin(), matching.end(),
            [](const CacheFile& a, const CacheFile& b) { return a.last_used > b.last_used; });
  for (const CacheFile& file : matching) {
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

std::vector<CacheFile> CubinCache::files() const {
  return cache_files(directory_, "", kSuffix);
}

GcResult CubinCache::collect(const GcPolicy& policy) const {
  return collect_garbage(directory_, kSuffix, policy, [](const std::filesystem::path& file) {
    const auto entry = read(file);
    return !entry && entry.error().code == ErrorCode::corrupt;
  });
}

}  // namespace ingot::jit
