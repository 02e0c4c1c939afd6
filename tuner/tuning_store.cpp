#include "tuner/tuning_store.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/log.hpp"

namespace ingot {
namespace {

std::vector<TuningCache> caches_of(const std::vector<std::filesystem::path>& directories) {
  return {directories.begin(), directories.end()};
}

std::string folders(const std::vector<TuningCache>& layers) {
  std::string text;
  for (const TuningCache& layer : layers)
    text += (text.empty() ? "" : ", ") + layer.directory().string();
  return text.empty() ? "no folder" : text;
}

}  // namespace

TuningStore::TuningStore(const std::vector<std::filesystem::path>& directories, bool any_compiler)
    : layers_(caches_of(directories)), any_compiler_(any_compiler) {}

void TuningStore::warn_once(const std::string& topic, const std::string& line) {
  {
    const std::lock_guard lock(mutex_);
    if (!warned_.insert(topic).second) return;
  }
  log::warn("{}", line);
}

std::optional<TuningRecord> TuningStore::find(const TuningKey& key) {
  {
    const std::lock_guard lock(mutex_);
    const auto saved = std::find_if(saved_.rbegin(), saved_.rend(),
                                    [&](const TuningRecord& record) { return record.key == key; });
    if (saved != saved_.rend()) return *saved;
  }
  std::optional<TuningRecord> best;
  const auto consider = [&](TuningRecord record) {
    if (!best || (record.complete && !best->complete)) best = std::move(record);
  };
  for (const TuningCache& layer : layers_) {
    auto record = layer.find(key);
    if (record) {
      consider(std::move(*record));
      continue;
    }
    const Error& error = record.error();
    if (error.code == ErrorCode::not_found) continue;
    if (error.code == ErrorCode::io) {
      warn_once("read " + layer.directory().string(),
                fmt::format("{}; the folder is passed over", error.message));
    } else {
      warn_once(error.message, fmt::format("{}; it counts as missing", error.message));
    }
  }
  if (!best && any_compiler_) {
    for (const TuningCache& layer : layers_) {
      if (auto record = layer.find_any_compiler(key)) consider(std::move(*record));
    }
  }
  return best;
}

bool TuningStore::save(const TuningRecord& record) {
  {
    const std::lock_guard lock(mutex_);
    saved_.push_back(record);
  }
  if (layers_.empty()) {
    warn_once("save",
              "there is no cache folder: what is tuned is forgotten at the end; name one with "
              "--cache-dir");
    return false;
  }
  if (const auto published = layers_.front().publish(record); !published) {
    warn_once("save", fmt::format("tuning records cannot be written ({}): what is tuned is "
                                  "forgotten at the end",
                                  published.error().message));
    return false;
  }
  return true;
}

std::vector<TuningRecord> TuningStore::all() const {
  std::vector<TuningRecord> records;
  std::set<std::string> names;
  for (const TuningCache& layer : layers_) {
    for (const CacheFile& file : layer.files()) {
      auto record = TuningCache::read(file.path);
      if (record && names.insert(file.path.filename().string()).second) {
        records.push_back(std::move(*record));
      }
    }
  }
  return records;
}

std::vector<std::string> TuningStore::explain(const TuningKey& key) const {
  std::vector<std::string> lines;
  std::optional<std::vector<std::string>> fewest;
  std::filesystem::path nearest;
  for (const TuningCache& layer : layers_) {
    if (const auto record = layer.find(key)) {
      lines.push_back(fmt::format("hit: {}{}",
                                  (layer.directory() / TuningCache::file_name(key)).string(),
                                  record->complete ? "" : " (cut short by its budget)"));
      return lines;
    } else if (record.error().code != ErrorCode::not_found) {
      lines.push_back(record.error().message);
    }
    for (const CacheFile& file : layer.files()) {
      const auto record = TuningCache::read(file.path);
      if (!record) continue;
      auto found = differences(key, record->key);
      if (fewest && fewest->size() <= found.size()) continue;
      fewest = std::move(found);
      nearest = file.path;
    }
  }
  if (!fewest) {
    lines.push_back(fmt::format("miss: no tuning record in {}", folders(layers_)));
    return lines;
  }
  lines.push_back(fmt::format("miss: the nearest record is {}", nearest.string()));
  for (std::string& difference : *fewest)
    lines.push_back("  " + std::move(difference));
  return lines;
}

}  // namespace ingot
