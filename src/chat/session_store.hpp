#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"

namespace ingot {

/// Where saved sessions lie: one file a name in a folder of the user's, or wherever a path says.
class SessionStore {
 public:
  /// The end of every session's file name.
  static constexpr std::string_view kExtension = ".session";

  /// @param folder  empty: there is none, and only paths can be saved to
  explicit SessionStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

  bool has_folder() const { return !folder_.empty(); }
  /// Makes the folder of this file, for its owner's eyes only, where the file is the store's own;
  /// folders that a user named are the user's. Error: io.
  [[nodiscard]] Result<void> make_folder_of(const std::filesystem::path& file) const;
  /// Removes what writers that died left in the folder of this file a day ago or before, where the
  /// file is the store's own.
  void sweep_folder_of(const std::filesystem::path& file) const;
  /// The file of a session. What has a slash in it, or the extension at its end, is a path.
  /// Error: invalid_argument for a name that makes no file, or where there is no folder.
  [[nodiscard]] Result<std::filesystem::path> file_of(std::string_view name) const;
  /// Whether it names a file, and no session in the folder.
  static bool is_path(std::string_view name);
  /// One file has one key, whatever way it was named.
  static std::filesystem::path key_of(const std::filesystem::path& file);
  /// A name that can stand for a session.
  [[nodiscard]] static Result<void> check_name(std::string_view name);

  /// The same name, or path, with a number behind it: "plan-2", "./plan-2.session".
  static std::string numbered(std::string_view name, int number);
  /// The name of a conversation that was given none: today's date.
  static std::string automatic_name();

  struct Entry {
    std::string name;
    std::uint64_t bytes = 0;
    std::filesystem::file_time_type time;
  };
  /// Regular files with the name of a session, the newest first; what is in them is not looked at.
  std::vector<Entry> list() const;

 private:
  std::filesystem::path folder_;
};

}  // namespace ingot
