#include "tuner/tuning_cache.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/atomic_publish.hpp"

namespace ingot {
namespace {

constexpr std::string_view kSuffix = ".tuning";

std::string name_without_compiler(const TuningKey& key) {
  return fmt::format("{}-{}-{}-", key.families.front().stem, key.device.arch, key.key());
}

}  // namespace

std::string TuningCache::file_name(const TuningKey& key) {
  return fmt::format("{}{}{}", name_without_compiler(key), key.compiler_key(), kSuffix);
}

Result<TuningRecord> TuningCache::read_bytes(std::string_view bytes, std::string_view name,
                                             std::string_view origin) {
  auto record = decode_record(bytes, origin);
  if (record && file_name(record->key) != name) {
    return fail(ErrorCode::corrupt, fmt::format("tuning record {}: it belongs under the name {}",
                                                origin, file_name(record->key)));
  }
  return record;
}

Result<TuningRecord> TuningCache::read(const std::filesystem::path& file) {
  const auto bytes = read_whole_file(file);
  if (!bytes) return tl::unexpected(bytes.error());
  return read_bytes(*bytes, file.filename().string(), file.string());
}

Result<TuningRecord> TuningCache::find(const TuningKey& wanted) const {
  const auto file = directory_ / file_name(wanted);
  auto record = read(file);
  if (!record) return record;
  if (record->key != wanted) {  // two keys with one digest: the text decides
    return fail(ErrorCode::not_found,
                fmt::format("{} holds another tuning of the same digest", file.string()));
  }
  mark_used(file);
  return record;
}

Result<TuningRecord> TuningCache::find_any_compiler(const TuningKey& wanted) const {
  std::vector<CacheFile> matching = cache_files(directory_, name_without_compiler(wanted), kSuffix);
  std::sort(matching.begin(), matching.end(),
            [](const CacheFile& a, const CacheFile& b) { return a.last_used > b.last_used; });
  for (const CacheFile& file : matching) {
    auto record = read(file.path);
    if (!record) continue;
    TuningKey alike = record->key;
    alike.compiler = wanted.compiler;
    if (alike == wanted) return record;
  }
  return fail(ErrorCode::not_found,
              fmt::format("no tuning of {} in {}", wanted.title(), directory_.string()));
}

Result<void> TuningCache::publish(const TuningRecord& record) const {
  return publish_file(directory_ / file_name(record.key), encode_record(record));
}

std::vector<CacheFile> TuningCache::files() const {
  return cache_files(directory_, "", kSuffix);
}

GcResult TuningCache::collect(const GcPolicy& policy) const {
  return collect_garbage(directory_, kSuffix, policy, [](const std::filesystem::path& file) {
    const auto record = read(file);
    return !record && record.error().code == ErrorCode::corrupt;
  });
}

}  // namespace ingot
