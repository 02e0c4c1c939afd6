#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/jit/cache_entry.hpp"
#include "runtime/jit/cubin_cache.hpp"

namespace ingot::jit {

/// A file of another cache that travels with the kernels: this layer does not know what is in it.
struct BundleFile {
  std::string name;  ///< a plain file name
  std::string bytes;

  bool operator==(const BundleFile&) const = default;
};

/// What a bundle holds: entries of a kernel cache, and the files of the cache above it (tuning
/// choices).
struct Bundle {
  std::vector<CacheEntry> kernels = {};
  std::vector<BundleFile> files = {};
};

/// Caches as one file that can be carried to another user, folder and machine. All is compressed
/// together: kernels of one family share most of their source and code.
std::string encode_bundle(const Bundle& bundle);

/// Every kernel entry is checked as one of a cache is; of the files only the names are.
/// `origin` is for messages.
/// Errors: corrupt (damaged, cut off, an entry under a name that is not its own, a file name that
/// is none), unsupported (made by an older or a newer ingot).
[[nodiscard]] Result<Bundle> decode_bundle(std::string_view bytes, std::string_view origin);

struct ExportResult {
  int kernels = 0;
  int bars = 0;
  int damaged = 0;  ///< left out
  int files = 0;
  std::uint64_t bundle_bytes = 0;
};
/// Writes the entries of `layers` (of several with one key the first) whose architecture is in
/// `archs` (empty: all), and `files`, to `file`, replacing it. Error: io; not_found when there is
/// nothing to write.
[[nodiscard]] Result<ExportResult> export_bundle(const std::vector<CubinCache>& layers,
                                                 const std::vector<std::string>& archs,
                                                 const std::filesystem::path& file,
                                                 std::vector<BundleFile> files = {});

/// The bundle in `file`. Errors: those of decode_bundle; not_found, io.
[[nodiscard]] Result<Bundle> read_bundle(const std::filesystem::path& file);

struct ImportResult {
  int added = 0;
  int known = 0;  ///< were there already, and whole
};
/// Publishes every kernel of `bundle` into `cache`. Error: io.
[[nodiscard]] Result<ImportResult> import_kernels(const Bundle& bundle, const CubinCache& cache);

}  // namespace ingot::jit
