#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

/// A path whose `~`, at its start and with a slash or nothing behind it, is the user's home.
/// @param home  empty: there is none, and the path stays as it is
std::string with_home(std::string_view path, const std::filesystem::path& home);

/// The file, or session, that the argument of a command names, as people bring names along from a
/// shell: one pair of quotes around it goes, and so does a backslash in front of a blank or another
/// mark; then with_home(). A blank without either is a part of the name. A file that is called
/// exactly as the argument reads is meant before all that.
std::string file_argument(std::string_view argument, const std::filesystem::path& home);

/// What completes such an argument: names of files and folders (those with a slash behind) that
/// begin like this, with the quote or `~` that it begins with.
std::vector<std::string> file_completions(std::string_view begun,
                                          const std::filesystem::path& home);

}  // namespace ingot
