#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/cache_folder.hpp"
#include "runtime/base/error.hpp"
#include "tuner/tuning_record.hpp"

namespace ingot {

/// One folder of tuning records: a file for each key, published by rename. Any number of processes,
/// machines and threads may use one folder at a time; nothing is locked.
/// Owns the names of the files. Not its job: layers, tuning.
class TuningCache {
 public:
  /// `directory` need not exist.
  explicit TuningCache(std::filesystem::path directory) : directory_(std::move(directory)) {}

  const std::filesystem::path& directory() const { return directory_; }

  /// The record with exactly this key. Errors: not_found; corrupt (damaged: the message names the
  /// file), unsupported (another schema), io (there, but it cannot be read).
  [[nodiscard]] Result<TuningRecord> find(const TuningKey& wanted) const;
  /// The newest record that matches in all but the compiler. Damaged ones are passed over.
  /// Error: not_found.
  [[nodiscard]] Result<TuningRecord> find_any_compiler(const TuningKey& wanted) const;
  /// Writes the record over the one of its key. Error: io.
  [[nodiscard]] Result<void> publish(const TuningRecord& record) const;

  /// Every record's file, by name. A missing folder has none.
  std::vector<CacheFile> files() const;
  /// Reads one record and checks that it lies under its own key. Errors as find().
  [[nodiscard]] static Result<TuningRecord> read(const std::filesystem::path& file);
  /// The same of bytes that say they are the file `name`.
  [[nodiscard]] static Result<TuningRecord> read_bytes(std::string_view bytes,
                                                       std::string_view name,
                                                       std::string_view origin);
  /// "fp8_linear-sm_90a-<key>-<compiler>.tuning"
  static std::string file_name(const TuningKey& key);

  /// Never breaks a reader: a record that goes while it is read is read to its end.
  GcResult collect(const GcPolicy& policy) const;

 private:
  std::filesystem::path directory_;
};

}  // namespace ingot
