#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

/// A folder of small files that any number of processes publish, read and remove without locks.
namespace ingot {

struct CacheFile {
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  std::chrono::system_clock::time_point last_used;
};

/// The files whose names begin and end so, by name; temporaries of publish_file are none. A missing
/// folder has none.
std::vector<CacheFile> cache_files(const std::filesystem::path& directory, std::string_view prefix,
                                   std::string_view suffix);

/// Makes a file that was hit young again, at most once a day, so that reading hardly ever writes. A
/// read-only folder stays as it is.
void mark_used(const std::filesystem::path& file);

struct GcPolicy {
  std::uint64_t most_bytes = std::uint64_t{4} << 30;            ///< the longest unused go first
  std::chrono::seconds most_age = std::chrono::hours(24 * 90);  ///< unused for longer: goes
  std::chrono::seconds temporary_age = std::chrono::hours(1);
};
struct GcResult {
  int removed = 0;
  std::uint64_t removed_bytes = 0;
  int kept = 0;
  std::uint64_t kept_bytes = 0;
  int damaged = 0;      ///< of the removed ones
  int temporaries = 0;  ///< leftovers of killed processes
};
/// Removes files that `is_damaged` says so of, those that are too old, and the longest unused until
/// the rest fits; and what killed publishers left. Never breaks a reader.
GcResult collect_garbage(const std::filesystem::path& directory, std::string_view suffix,
                         const GcPolicy& policy,
                         const std::function<bool(const std::filesystem::path&)>& is_damaged);

}  // namespace ingot
