#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/cache_folder.hpp"
#include "runtime/base/error.hpp"
#include "runtime/jit/cache_entry.hpp"

namespace ingot::jit {

/// One folder of kernels: a file for each entry, named by its key and published by rename. Any
/// number of processes, machines and threads may use one folder at a time; nothing is ever locked,
/// and what a killed process leaves behind is swept by a later one.
/// Owns the names of the files. Not its job: compiling, layers, deciding what is worth keeping.
class CubinCache {
 public:
  /// `directory` need not exist.
  explicit CubinCache(std::filesystem::path directory) : directory_(std::move(directory)) {}

  const std::filesystem::path& directory() const { return directory_; }

  /// The entry with exactly this manifest. Errors: not_found; corrupt (damaged: the message names
  /// the file), unsupported (a newer format), io (there, but it cannot be read).
  [[nodiscard]] Result<CacheEntry> find(const Manifest& wanted) const;
  /// The newest kernel that matches in all but the compiler. Damaged ones are passed over.
  /// Error: not_found.
  [[nodiscard]] Result<CacheEntry> find_any_compiler(const Manifest& wanted) const;
  /// Writes the entry over the one of its key. Error: io.
  [[nodiscard]] Result<void> publish(const CacheEntry& entry) const;

  using File = CacheFile;
  /// Every entry's file, by name. A missing folder has none.
  std::vector<File> files() const;
  /// Reads one entry and checks that it lies under its own key. Errors as find().
  [[nodiscard]] static Result<CacheEntry> read(const std::filesystem::path& file);
  /// "rms_norm-sm_90a-<key>-<compiler>.kernel"
  static std::string file_name(const Manifest& manifest);

  using GcPolicy = ingot::GcPolicy;
  using GcResult = ingot::GcResult;
  /// Never breaks a reader: an entry that goes while it is read is read to its end, one that went
  /// is rebuilt.
  GcResult collect(const GcPolicy& policy) const;

 private:
  std::filesystem::path directory_;
};

}  // namespace ingot::jit
