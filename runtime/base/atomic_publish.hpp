#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace ingot {

/// Who may read a published file.
enum class FileAccess {
  everyone,  ///< less what the umask takes
  owner,
};

/// Writes `bytes` under a temporary name beside `target`, syncs them to the disk and renames them
/// over it: a reader sees the old file or the new one, whole, whatever dies when. Creates missing
/// folders. Any number of processes and machines may publish the same name; the last one stays.
/// Error: io; nothing is left behind.
[[nodiscard]] Result<void> publish_file(const std::filesystem::path& target, std::string_view bytes,
                                        FileAccess access = FileAccess::everyone);

/// Whether a name is one of publish_file's temporaries.
bool is_temporary_name(std::string_view file_name);

/// Removes temporaries of publishers that died: those not written to for `age`. Errors are ignored.
/// Returns how many went.
int sweep_temporaries(const std::filesystem::path& directory, std::chrono::seconds age);

/// The whole file through one descriptor, so that a rename during the read does no harm.
/// Errors: not_found (absent, or its folder is), io.
[[nodiscard]] Result<std::string> read_whole_file(const std::filesystem::path& file);

}  // namespace ingot
