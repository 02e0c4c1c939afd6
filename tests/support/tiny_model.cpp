#include "tests/support/tiny_model.hpp"

#include "src/weights/synth.hpp"
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

}  // namespace ingot::test
