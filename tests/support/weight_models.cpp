#include "tests/support/weight_models.hpp"

#include "src/weights/synth.hpp"
#include "tests/support/safetensors_file.hpp"

namespace ingot::test {

const std::filesystem::path& weight_model(const std::string& name) {
  const auto write = [](const std::filesystem::path& out, const char* config) {
    SynthOptions options;
    options.config_json = golden_dir() / "checkpoint" / config;
    options.seed = 1;
    options.out = out;
    options.threads = 2;
    value_or_throw(write_synthetic_checkpoint(options, [](std::uint64_t, std::uint64_t) {}));
    return out;
  };
  static const TempDir folder;
  static const std::filesystem::path tiny = write(folder / "tiny", "tiny.json");
  static const std::filesystem::path tiny_tp = write(folder / "tiny-tp", "tiny-tp.json");
  return name == "tiny" ? tiny : tiny_tp;
}

DamagedModel::DamagedModel(const std::vector<Damage>& all) {
  const std::filesystem::path& whole = weight_model("tiny");
  std::filesystem::copy_file(whole / "config.json", folder_ / "config.json");
  SafetensorsFile file = SafetensorsFile::read(whole / "model.safetensors");
  for (const Damage& damage : all) {
    const auto& place = file.header.at(damage.tensor).at("data_offsets");
    file.data.replace(place.at(0).get<std::size_t>() + damage.at, damage.bytes.size(),
                      damage.bytes);
  }
  file.write(folder_ / "model.safetensors");
}

}  // namespace ingot::test
