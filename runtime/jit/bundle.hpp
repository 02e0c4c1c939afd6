#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/jit/cache_entry.hpp"
#include "runtime/jit/cubin_cache.hpp"

namespace ingot::jit {

/// Entries of a kernel cache as one file that can be carried to another user, folder and machine.
/// All entries are compressed together: kernels of one family share most of their source and code.
std::string encode_bundle(const std::vector<CacheEntry>& entries);

/// Every entry, each checked as one of a cache is. `origin` is for messages.
/// Errors: corrupt (damaged, cut off, or an entry under a name that is not its own), unsupported
/// (made by a newer ingot).
[[nodiscard]] Result<std::vector<CacheEntry>> decode_bundle(std::string_view bytes,
                                                            std::string_view origin);

struct ExportResult {
  int kernels = 0;
  int bars = 0;
  int damaged = 0;  ///< left out
  std::uint64_t bundle_bytes = 0;
};
/// Writes the entries of `layers` (of several with one key the first) whose architecture is in
/// `archs` (empty: all) to `file`, replacing it. Error: io; not_found when there is none.
[[nodiscard]] Result<ExportResult> export_bundle(const std::vector<CubinCache>& layers,
                                                 const std::vector<std::string>& archs,
                                                 const std::filesystem::path& file);

struct ImportResult {
  int added = 0;
  int known = 0;  ///< were there already, and whole
};
/// Publishes every entry of `file` into `cache`. Nothing is published unless all of the bundle is
/// good. Errors: those of decode_bundle; not_found, io.
[[nodiscard]] Result<ImportResult> import_bundle(const std::filesystem::path& file,
                                                 const CubinCache& cache);

}  // namespace ingot::jit
