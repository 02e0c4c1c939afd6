#include "src/cli/settings.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "src/cli/settings_config.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

std::string refusal(std::string_view toml) {
  LayeredSettings settings;
  const auto applied = apply_settings_toml(settings, toml, "my.toml");
  if (applied) return "accepted";
  CHECK(applied.error().code == ErrorCode::invalid_argument);
  CHECK(applied.error().message.find('\n') == std::string::npos);
  return applied.error().message;
}

bool mentions(const std::string& message, std::string_view word) {
  return message.find(word) != std::string::npos;
}

}  // namespace

TEST_CASE("every setting has one key, one flag and a valid default", "[cpu][cli]") {
  std::set<std::string_view> keys, flags;
  for (const SettingSpec& spec : setting_specs()) {
    CAPTURE(spec.key);
    CHECK(keys.insert(spec.key).second);
    CHECK(flags.insert(spec.flag).second);
    CHECK(spec.flag.starts_with("--"));
    CHECK(!spec.doc.empty());
    CHECK(find_setting(spec.key) == &spec);
    Settings settings;
    std::visit(
        [&]<class T>(T Settings::*member) {
          if constexpr (!std::is_same_v<T, std::optional<std::int64_t>>) {
            CHECK(assign(settings, spec, SettingValue(settings.*member)));
          }
        },
        spec.member);
  }
}

TEST_CASE("a settings file sets values of every type", "[cpu][cli]") {
  LayeredSettings settings;
  REQUIRE(apply_settings_toml(settings, R"(
model = "dir"
[engine]
context = 4096
[sampling]
top_p = 0.5
temperature = 1
seed = 7
stop = ["a", "b"]
[chat]
keep_thinking = true
thinking = "high"
)",
                              "my.toml"));
  const Settings& values = settings.values();
  CHECK(values.model == "dir");
  CHECK(values.context == 4096);
  CHECK(values.top_p == 0.5);
  CHECK(values.temperature == 1);
  CHECK(values.seed == 7);
  CHECK(values.stop == std::vector<std::string>{"a", "b"});
  CHECK(values.keep_thinking);
  CHECK(values.thinking == "high");
  CHECK(settings.layers("sampling.top_p").at(0).origin == "my.toml:6");
}

TEST_CASE("an unknown key is refused with file, line and the nearest known one", "[cpu][cli]") {
  const std::string message = refusal("[sampling]\n\ntemprature = 1\n");
  CHECK(mentions(message, "my.toml:3:"));
  CHECK(mentions(message, "sampling.temprature"));
  CHECK(mentions(message, "sampling.temperature"));
  CHECK(mentions(refusal("[samplin]\ntop_p = 1\n"), "my.toml:"));
  CHECK(mentions(refusal("surprise = 1\n"), "my.toml:1:"));
}

TEST_CASE("a wrong type is refused with file and line", "[cpu][cli]") {
  CHECK(refusal("[sampling]\ntop_p = \"much\"\n") ==
        "my.toml:2: sampling.top_p must be a number from 0 to 1, not \"much\"");
  CHECK(
      mentions(refusal("[engine]\ncontext = 1.5\n"), "my.toml:2: engine.context must be a whole"));
  CHECK(mentions(refusal("[sampling]\nstop = [1]\n"), "my.toml:2: sampling.stop"));
  CHECK(mentions(refusal("model = 1979-05-27\n"), "my.toml:1: model"));
  CHECK(mentions(refusal("[sampling.top_p]\nx = 1\n"), "my.toml:1:"));
  CHECK(mentions(refusal("[chat]\nkeep_thinking = 1\n"), "true or false"));
}

TEST_CASE("a value out of range is refused with the range", "[cpu][cli]") {
  CHECK(mentions(refusal("[engine]\nmax_batch = 1000000000000000000\n"), "from 1 to 4096"));
  CHECK(mentions(refusal("[engine]\nmax_batch = -1\n"), "from 1 to 4096, not -1"));
  CHECK(mentions(refusal("[sampling]\ntop_p = nan\n"), "from 0 to 1, not nan"));
  CHECK(mentions(refusal("[sampling]\ntop_p = inf\n"), "not inf"));
  CHECK(mentions(refusal("device = \"tpu\"\n"), "auto, cuda, cpu"));
}

TEST_CASE("broken TOML is refused with file and line", "[cpu][cli]") {
  CHECK(mentions(refusal("a = 1\n[x\n"), "my.toml:2: not valid TOML"));
  CHECK(mentions(refusal("[engine]\ncontext = 99\ncontext = 98\n"), "my.toml:3:"));
  CHECK(mentions(refusal("x = \"\xFF\"\n"), "my.toml:1:"));
  CHECK(mentions(refusal("context = 99999999999999999999999\n"), "my.toml:1:"));
  CHECK(mentions(refusal("x = " + std::string(100000, '[')), "my.toml:1:"));
  // Found by fuzzing: the TOML library aborted.
  CHECK(mentions(refusal("\n[\x06sampling]\n"), "my.toml:2: not valid TOML"));
}

TEST_CASE("a settings file that is missing, a folder or huge is refused by name", "[cpu][cli]") {
  const TempDir folder;
  LayeredSettings settings;
  const auto missing = apply_settings_file(settings, folder / "no.toml");
  REQUIRE(!missing);
  CHECK(missing.error().code == ErrorCode::not_found);
  CHECK(mentions(missing.error().message, "no.toml"));
  CHECK(!apply_settings_file(settings, folder.path()));
  write_file(folder / "big.toml", std::string(2 << 20, '#'));
  const auto big = apply_settings_file(settings, folder / "big.toml");
  REQUIRE(!big);
  CHECK(mentions(big.error().message, "2097152 bytes"));
}

TEST_CASE("text of a flag is read whole or refused", "[cpu][cli]") {
  Settings settings;
  const SettingSpec& batch = *find_setting("engine.max_batch");
  const auto give = [&](const std::string& text) {
    return assign_text(settings, batch, std::vector<std::string>{text}).has_value();
  };
  CHECK(give("12"));
  CHECK(settings.max_batch == 12);
  for (const char* text : {"", "-1", "0", "5000", "10^18", "1000000000000000000", "1e3", "12x",
                           " 12", "0x10", "99999999999999999999999999"}) {
    CAPTURE(text);
    CHECK(!give(text));
  }
  CHECK(settings.max_batch == 12);
  const SettingSpec& heat = *find_setting("sampling.temperature");
  for (const char* text : {"nan", "inf", "-0.5", "2.5", "hot", "1e999"}) {
    CAPTURE(text);
    CHECK(!assign_text(settings, heat, std::vector<std::string>{text}));
  }
}

TEST_CASE("of several sources the strongest wins and the others are remembered", "[cpu][cli]") {
  LayeredSettings settings;
  const SettingSpec& spec = *find_setting("sampling.top_p");
  CHECK(settings.layers(spec.key).empty());
  REQUIRE(apply_settings_toml(settings, "[sampling]\ntop_p = 0.5\n", "my.toml"));
  REQUIRE(settings.apply_text(spec, std::vector<std::string>{"0.9"}, "--top-p"));
  const auto layers = settings.layers(spec.key);
  REQUIRE(layers.size() == 2);
  CHECK(layers[0].origin == "--top-p");
  CHECK(layers[0].value == "0.9");
  CHECK(layers[1].origin == "my.toml:2");
  CHECK(layers[1].value == "0.5");
  CHECK(settings.values().top_p == 0.9);
}
