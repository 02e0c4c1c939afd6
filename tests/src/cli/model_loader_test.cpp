#include "src/cli/model_loader.hpp"

#include <catch2/catch.hpp>

#include "src/weights/synth.hpp"
#include "tests/support/safetensors_file.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

TEST_CASE("a model that lacks tensors is refused with all of them, not with the first it needs",
          "[cpu][cli]") {
  const test::TempDir dir;
  SynthOptions options;
  options.config_json = test::golden_dir() / "checkpoint/tiny.json";
  options.out = dir / "model";
  value_or_throw(write_synthetic_checkpoint(options, nullptr));
  auto file = test::SafetensorsFile::read(dir / "model/model.safetensors");
  file.remove("layers.1.attn.wkv.scale");
  file.remove("norm.weight");
  file.write(dir / "model/model.safetensors");

  Settings settings;
  settings.model = (dir / "model").string();
  const auto model = load_model(settings, {}, WithTokenizer::no);
  REQUIRE(!model);
  CHECK(exit_status(model.error().code) == 2);
  CHECK(model.error().message.find("layers.1.attn.wkv.scale") != std::string::npos);
  CHECK(model.error().message.find("norm.weight") != std::string::npos);
}
