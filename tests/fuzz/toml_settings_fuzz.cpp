// Any bytes as a settings file: refused with one line that names the place, or every setting can be
// shown and read back.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "src/cli/settings_config.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ingot::LayeredSettings settings;
  const auto applied = ingot::apply_settings_toml(settings, text, "fuzz.toml");
  if (!applied) {
    const std::string& message = applied.error().message;
    if (!message.starts_with("fuzz.toml:") || message.find('\n') != message.npos) std::abort();
    return 0;
  }
  for (const ingot::SettingSpec& spec : ingot::setting_specs()) {
    if (show(settings.values(), spec).empty()) std::abort();
    if (!settings.layers(spec.key).empty() &&
        !settings.layers(spec.key).front().origin.starts_with("fuzz.toml:")) {
      std::abort();
    }
  }
  return 0;
}
