#include "src/cli/settings_config.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/cli/read_text_file.hpp"
#include "src/cli/toml_library.hpp"
#include "src/text/utf8.hpp"

namespace ingot {
namespace {

constexpr std::size_t kMaxFileBytes = 1 << 20;

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string_view nearest_key(std::string_view key) {
  const auto specs = setting_specs();
  return std::min_element(specs.begin(), specs.end(),
                          [&](const SettingSpec& a, const SettingSpec& b) {
                            return edit_distance(key, a.key) < edit_distance(key, b.key);
                          })
      ->key;
}

std::string place(std::string_view origin, const toml::source_region& source) {
  return fmt::format("{}:{}", origin, source.begin.line);
}

/// The line of the first control character, which TOML allows nowhere; 0 if there is none.
std::size_t line_of_control(std::string_view toml) {
  std::size_t line = 1;
  for (const char c : toml) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == '\n') ++line;
    if ((byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F) return line;
  }
  return 0;
}

/// Outside text, cut and on one line.
std::string tame(std::string_view text) {
  constexpr std::size_t kLongest = 100;
  std::string mended;
  text = mend_utf8(text, mended);
  std::string out(cut_utf8(text, kLongest));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return out.size() < text.size() ? out + "…" : out;
}

std::optional<SettingValue> to_value(const toml::node& node) {
  if (const auto* text = node.as_string()) return SettingValue(text->get());
  if (const auto* whole = node.as_integer()) return SettingValue(whole->get());
  if (const auto* number = node.as_floating_point()) return SettingValue(number->get());
  if (const auto* flag = node.as_boolean()) return SettingValue(flag->get());
  if (const auto* array = node.as_array()) {
    std::vector<std::string> items;
    for (const toml::node& item : *array) {
      if (!item.is_string()) return std::nullopt;
      items.push_back(item.as_string()->get());
    }
    return SettingValue(std::move(items));
  }
  return std::nullopt;
}

Result<void> apply_table(LayeredSettings& settings, const toml::table& table,
                         const std::string& prefix, std::string_view origin) {
  for (const auto& [name, node] : table) {
    const std::string key =
        prefix.empty() ? std::string(name.str()) : fmt::format("{}.{}", prefix, name.str());
    const std::string where = place(origin, node.source());
    const SettingSpec* spec = find_setting(key);
    if (const auto* inner = node.as_table()) {
      const bool is_group =
          std::any_of(setting_specs().begin(), setting_specs().end(),
                      [&](const SettingSpec& each) { return each.key.starts_with(key + "."); });
      if (is_group) {
        if (auto applied = apply_table(settings, *inner, key, origin); !applied) return applied;
        continue;
      }
    }
    if (spec == nullptr) {
      return fail(
          ErrorCode::invalid_argument,
          fmt::format("{}: unknown setting {}; the nearest known one is {}, and `ingot doctor "
                      "--settings` lists all",
                      where, tame(key), nearest_key(cut_utf8(key, 100))));
    }
    const auto value = to_value(node);
    if (!value) {
      return fail(
          ErrorCode::invalid_argument,
          fmt::format("{}: {} must not be a value of this type (a date, a table or a list that "
                      "holds more than strings)",
                      where, key));
    }
    if (auto applied = settings.apply(*spec, *value, where); !applied) return applied;
  }
  return {};
}

}  // namespace

Result<void> apply_settings_toml(LayeredSettings& settings, std::string_view toml,
                                 std::string_view origin) {
  if (const std::size_t line = line_of_control(toml); line > 0) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{}:{}: not valid TOML: it holds a control character; take it out",
                            origin, line));
  }
  try {
    const toml::table table = toml::parse(toml, origin);
    return apply_table(settings, table, "", origin);
  } catch (const toml::parse_error& error) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{}: not valid TOML: {}; correct the line",
                            place(origin, error.source()), tame(error.description())));
  } catch (const BrokenToml&) {
    return fail(
        ErrorCode::invalid_argument,
        fmt::format("{}:1: not valid TOML, somewhere from this line on; correct it", origin));
  }
}

Result<void> apply_settings_file(LayeredSettings& settings, const std::filesystem::path& file) {
  auto text = read_text_file(file, kMaxFileBytes);
  if (!text) {
    return fail(text.error().code, fmt::format("settings file: {}", text.error().message));
  }
  return apply_settings_toml(settings, *text, file.string());
}

}  // namespace ingot
