#include "src/chat/file_argument.hpp"

#include <utility>

#include "src/chat/quoted_text.hpp"

namespace ingot {
namespace {

bool is_quote(char c) {
  return c == '"' || c == '\'';
}

bool is_mark(char c) {
  const auto byte = static_cast<unsigned char>(c);
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  return byte < 0x80 && !letter;
}

/// Inside of double quotes only these keep their backslash's meaning.
bool is_quoted_mark(char c) {
  return c == '"' || c == '\\';
}

template <class Escapable>
std::string without_backslashes(std::string_view text, const Escapable& escapable) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size() && escapable(text[i + 1])) ++i;
    out += text[i];
  }
  return out;
}

/// Names of files and folders (those with a slash behind) that begin like this.
std::vector<std::string> files_that_begin(std::string_view begun) {
  const std::size_t slash = begun.rfind('/');
  const std::string folder(begun.substr(0, slash == std::string_view::npos ? 0 : slash + 1));
  const bool hidden = begun.substr(folder.size()).starts_with('.');
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (name.starts_with('.') && !hidden) continue;
    name.insert(0, folder);
    std::error_code unknown;
    if (entry->is_directory(unknown)) name += '/';
    if (name.starts_with(begun)) names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

std::string with_home(std::string_view path, const std::filesystem::path& home) {
  if (home.empty() || (path != "~" && !path.starts_with("~/"))) return std::string(path);
  return home.string() + std::string(path.substr(1));
}

std::string file_argument(std::string_view argument, const std::filesystem::path& home) {
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(argument, error))) {
    return std::string(argument);
  }
  if (!is_quoted(argument)) return with_home(without_backslashes(argument, is_mark), home);
  const std::string_view inside = argument.substr(1, argument.size() - 2);
  return with_home(
      argument[0] == '"' ? without_backslashes(inside, is_quoted_mark) : std::string(inside), home);
}

std::vector<std::string> file_completions(std::string_view begun,
                                          const std::filesystem::path& home) {
  std::string quote;
  if (!begun.empty() && is_quote(begun[0])) quote = begun.substr(0, 1);
  const std::string_view name = begun.substr(quote.size());
  const std::string full = with_home(name, home);
  const bool from_home = name.starts_with("~/") && full != name;
  std::vector<std::string> names = files_that_begin(full);
  for (std::string& each : names) {
    if (from_home) each.replace(0, home.string().size(), "~");
    if (quote.empty()) continue;
    each.insert(0, quote);
    if (!each.ends_with('/')) each += quote;
  }
  return names;
}

}  // namespace ingot
