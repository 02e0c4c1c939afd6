#include "tests/support/tiny_model.hpp"

#include "src/weights/synth.hpp"
#include "tests/support/safetensors_file.hpp"
#include "tests/support/small_tokenizer.hpp"
#include "tests/support/temp_dir.hpp"

namespace ingot::test {

const std::filesystem::path& tiny_model() {
  static const TempDir folder;
  static const std::filesystem::path model = [] {
    SynthOptions options;
    options.config_json = golden_dir() / "checkpoint/tiny.json";
    options.seed = 1;
    options.out = folder / "tiny";
    value_or_throw(write_synthetic_checkpoint(options, [](std::uint64_t, std::uint64_t) {}));
    write_file(options.out / "tokenizer.json", small_tokenizer_json());
    std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
    return options.out;
  }();
  return model;
}

void write_changed_tiny_model(const std::filesystem::path& folder, const std::string& tensor,
                              std::initializer_list<int> rows, std::uint16_t bits) {
  std::filesystem::create_directories(folder);
  for (const char* name : {"config.json", "tokenizer.json"})
    std::filesystem::copy_file(tiny_model() / name, folder / name);
  SafetensorsFile file = SafetensorsFile::read(tiny_model() / "model.safetensors");
  const auto begin = file.header.at(tensor).at("data_offsets").at(0).get<std::size_t>();
  constexpr std::size_t kColumns = 256;
  for (const int row : rows) {
    for (std::size_t i = 0; i < kColumns; ++i) {
      const std::size_t at = begin + 2 * (static_cast<std::size_t>(row) * kColumns + i);
      file.data[at] = static_cast<char>(bits & 0xFF);
      file.data[at + 1] = static_cast<char>(bits >> 8);
    }
  }
  file.write(folder / "model.safetensors");
}

}  // namespace ingot::test
