#include "runtime/jit/source_bundle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <system_error>

namespace ingot::jit {
namespace {

/// The text with comments blanked, literals kept and continued lines joined; line ends stay.
std::string without_comments(std::string_view text) {
  std::string joined;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] == '\n') {
      ++i;
    } else {
      joined += text[i];
    }
  }
  enum class In { code, line_comment, block_comment, string, character };
  In state = In::code;
  std::string result;
  for (std::size_t i = 0; i < joined.size(); ++i) {
    const char c = joined[i];
    const char next = i + 1 < joined.size() ? joined[i + 1] : '\0';
    switch (state) {
      case In::code:
        if (c == '/' && next == '/') {
          state = In::line_comment;
        } else if (c == '/' && next == '*') {
          state = In::block_comment;
          ++i;
        } else {
          // 1'000: a digit separator opens no character literal.
          const bool separator = c == '\'' && i > 0 && joined[i - 1] >= '0' && joined[i - 1] <= '9';
          if (c == '"') state = In::string;
          if (c == '\'' && !separator) state = In::character;
          result += c;
        }
        break;
      case In::line_comment:
        if (c == '\n') {
          state = In::code;
          result += c;
        }
        break;
      case In::block_comment:
        if (c == '*' && next == '/') {
          state = In::code;
          result += ' ';
          ++i;
        } else if (c == '\n') {
          result += c;
        }
        break;
      case In::string:
      case In::character: {
        const char close = state == In::string ? '"' : '\'';
        result += c;
        if (c == '\\' && next != '\0') {
          result += next;
          ++i;
        } else if (c == close || c == '\n') {
          state = In::code;
        }
        break;
      }
    }
  }
  return result;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t'))
    text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

bool is_device_source(const std::filesystem::path& file) {
  const auto extension = file.extension();
  return extension == ".cuh" || extension == ".h" || extension == ".def";
}

Digest digest_of_bundle(const SourceBundle& bundle) {
  std::string text;
  const auto add = [&](const SourceFile& file) {
    // Lengths in front of the bytes: no two bundles flatten to one text.
    text += fmt::format("{} {}\n{}\n", file.name.size(), file.text.size(), file.name);
    text += file.text;
  };
  add(bundle.main);
  for (const SourceFile& header : bundle.headers)
    add(header);
  return digest_of(text);
}

}  // namespace

Result<std::vector<std::string>> includes_of(std::string_view text, std::string_view name) {
  std::vector<std::string> found;
  const std::string code = without_comments(text);
  std::string_view rest = code;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    line = trimmed(line);
    if (!line.starts_with('#')) continue;
    line = trimmed(line.substr(1));
    if (!line.starts_with("include") && !line.starts_with("embed") && !line.starts_with("import")) {
      if (line.find("__has_include") == std::string_view::npos) continue;
    }
    std::string_view target =
        line.starts_with("include") ? trimmed(line.substr(sizeof "include" - 1)) : "";
    if (target.size() < 3 || target.front() != '"' || target.back() != '"' ||
        target.find("..") != std::string_view::npos || target[1] == '/') {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("{}: \"#{}\": a template includes only files of its own tree, by "
                              "literal path from the root: #include \"common/types.cuh\"",
                              name, line));
    }
    found.emplace_back(target.substr(1, target.size() - 2));
  }
  return found;
}

SourceTree::SourceTree(std::vector<SourceFile> files) {
  for (SourceFile& file : files)
    files_.emplace(std::move(file.name), std::move(file.text));
}

Result<SourceTree> SourceTree::read_directory(const std::filesystem::path& root) {
  std::error_code error;
  std::vector<SourceFile> files;
  for (auto entry = std::filesystem::recursive_directory_iterator(root, error);
       !error && entry != std::filesystem::recursive_directory_iterator(); entry.increment(error)) {
    if (!entry->is_regular_file(error) || !is_device_source(entry->path())) continue;
    std::ifstream in(entry->path(), std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    if (!in) {
      return fail(ErrorCode::io,
                  fmt::format("reading the template {} failed", entry->path().string()));
    }
    files.push_back({entry->path().lexically_relative(root).generic_string(), std::move(text)});
  }
  if (error) {
    return fail(ErrorCode::not_found,
                fmt::format("reading the templates under {}: {}", root.string(), error.message()));
  }
  return SourceTree(std::move(files));
}

const std::string* SourceTree::find(std::string_view name) const {
  const auto found = files_.find(name);
  return found == files_.end() ? nullptr : &found->second;
}

std::vector<std::string> SourceTree::names() const {
  std::vector<std::string> names;
  for (const auto& [name, text] : files_)
    names.push_back(name);
  return names;
}

Result<SourceBundle> SourceTree::bundle(std::string_view name) const {
  const std::string* text = find(name);
  if (text == nullptr) {
    return fail(ErrorCode::not_found, fmt::format("there is no template {}", name));
  }
  SourceBundle bundle{.main = {std::string(name), *text}, .headers = {}, .digest = {}};
  std::map<std::string, std::string> seen;
  std::vector<std::pair<std::string, const std::string*>> open{{std::string(name), text}};
  while (!open.empty()) {
    const auto [from, from_text] = open.back();
    open.pop_back();
    const auto includes = includes_of(*from_text, from);
    if (!includes) return tl::unexpected(includes.error());
    for (const std::string& include : *includes) {
      if (include == name || seen.contains(include)) continue;
      const std::string* included = find(include);
      if (included == nullptr) {
        return fail(ErrorCode::not_found,
                    fmt::format("{} includes \"{}\", which is no template file", from, include));
      }
      seen.emplace(include, *included);
      open.emplace_back(include, included);
    }
  }
  for (auto& [header, header_text] : seen)
    bundle.headers.push_back({header, header_text});
  bundle.digest = digest_of_bundle(bundle);
  return bundle;
}

}  // namespace ingot::jit
