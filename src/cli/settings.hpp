#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/base/error.hpp"

namespace ingot {

/// Every setting that a flag or a settings file may give, with its default. The one list of names,
/// ranges and documentation is setting_specs().
struct Settings {
  std::string model;
  std::string device = "auto";
  std::int64_t tp_size = 1;
  std::string devices;
  std::int64_t threads = 0;
  std::int64_t context = 16384;
  std::int64_t prefill_chunk = 2048;
  std::int64_t max_batch = 8;
  std::string cache_dir;
  std::vector<std::string> cache_dirs;
  bool frozen = false;
  double tuning_budget = 60;
  std::vector<std::string> pins;
  std::vector<std::string> disabled;
  bool deterministic = false;

  double temperature = 1.0;
  double top_p = 1.0;
  std::int64_t top_k = 0;
  double min_p = 0.0;
  std::optional<std::int64_t> seed;
  double repetition_penalty = 1.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  std::optional<std::int64_t> max_tokens;
  std::vector<std::string> stop;

  std::string thinking = "none";
  std::optional<std::int64_t> thinking_budget;
  bool keep_thinking = false;
  std::string system;
};

/// Commands that take a setting as a flag.
enum class SettingGroup { model, engine, cache, sampling, chat };

struct SettingSpec {
  using Member = std::variant<bool Settings::*, std::int64_t Settings::*,
                              std::optional<std::int64_t> Settings::*, double Settings::*,
                              std::string Settings::*, std::vector<std::string> Settings::*>;

  std::string_view key;   ///< in a settings file: "sampling.top_p"
  std::string_view flag;  ///< on the command line: "--top-p"
  SettingGroup group;
  Member member;
  double low = 0;  ///< numbers: the range, ends included
  double high = 0;
  std::vector<std::string_view> choices;  ///< strings: the allowed values; empty: any
  std::string_view doc;
};

/// All settings in the order in which they are shown.
std::span<const SettingSpec> setting_specs();
const SettingSpec* find_setting(std::string_view key);

/// A value as a settings file or a program gives it.
using SettingValue =
    std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>>;

/// Sets one value after checking type and range.
/// Error: invalid_argument; the message starts with what is wrong and does not name the place,
/// which the caller knows ("must be a number from 0 to 2, not \"warm\"").
[[nodiscard]] Result<void> assign(Settings& settings, const SettingSpec& spec,
                                  const SettingValue& value);
/// The same from the text of a flag.
[[nodiscard]] Result<void> assign_text(Settings& settings, const SettingSpec& spec,
                                       std::span<const std::string> texts);

/// The value of one setting as a settings file would write it; "unset" where it has none.
std::string show(const Settings& settings, const SettingSpec& spec);

/// Values with the places that they came from.
class LayeredSettings {
 public:
  LayeredSettings() = default;

  const Settings& values() const { return values_; }

  /// Layers are applied from the weakest to the strongest; the last one wins.
  /// @param origin  "XDG_CACHE_HOME", "my.toml:3", "--top-p"
  /// Error: invalid_argument, with the origin and the key in front.
  [[nodiscard]] Result<void> apply(const SettingSpec& spec, const SettingValue& value,
                                   std::string origin);
  [[nodiscard]] Result<void> apply_text(const SettingSpec& spec, std::span<const std::string> texts,
                                        std::string origin);

  struct Layer {
    std::string origin;
    std::string value;
  };
  /// Where the value came from, strongest first; empty for a default.
  std::vector<Layer> layers(std::string_view key) const;

 private:
  void remember(const SettingSpec& spec, std::string origin);

  Settings values_;
  std::map<std::string, std::vector<Layer>, std::less<>> layers_;
};

}  // namespace ingot
