#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tuner/tuning_cache.hpp"

namespace ingot {

/// Tuning records by key, from the first cache folder that has them; written to the first folder. A
/// record that is damaged, of another schema or unreadable is warned of once and treated as
/// missing; a folder that is missing, read-only or full costs the records alone. Any thread may
/// call.
class TuningStore {
 public:
  /// @param directories  in order of look-up; the first is written to, the others are only read
  /// @param any_compiler  a record that matches in all but the compiler serves too: with --frozen,
  ///                      and where there is no compiler
  explicit TuningStore(const std::vector<std::filesystem::path>& directories,
                       bool any_compiler = false);

  /// The record of this key. One that is complete wins over one that is not in an earlier folder.
  std::optional<TuningRecord> find(const TuningKey& key);

  /// Publishes to the first folder, and keeps the record in memory in any case. False with one
  /// warning when it cannot be written.
  bool save(const TuningRecord& record);

  /// Every whole record of all layers, of several with one name the first; damaged ones are left
  /// out.
  std::vector<TuningRecord> all() const;

  /// Why a look-up hits or misses, a line each: the file that serves it, or the nearest record and
  /// the fields in which it differs.
  std::vector<std::string> explain(const TuningKey& key) const;

 private:
  void warn_once(const std::string& topic, const std::string& line);

  const std::vector<TuningCache> layers_;
  const bool any_compiler_;
  std::mutex mutex_;
  std::vector<TuningRecord> saved_;  // by this object; later ones win
  std::set<std::string> warned_;     // by topic
};

}  // namespace ingot
