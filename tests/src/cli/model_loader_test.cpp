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

TEST_CASE("the GPUs of a model's ranks are the first ones, or those of a list", "[cpu][cli]") {
  CHECK(value_or_throw(device_list("", 1)) == std::vector<int>{0});
  CHECK(value_or_throw(device_list("", 4)) == std::vector<int>{0, 1, 2, 3});
  CHECK(value_or_throw(device_list("3,0", 2)) == std::vector<int>{3, 0});
  const auto refusal = [](std::string_view text, int tp_size) {
    const auto devices = device_list(text, tp_size);
    REQUIRE(!devices);
    CHECK(devices.error().code == ErrorCode::invalid_argument);
    return devices.error().message;
  };
  CHECK_THAT(refusal("0", 2), Catch::Contains("names 1 GPUs for 2"));
  CHECK_THAT(refusal("0,0", 2), Catch::Contains("GPU 0 twice"));
  for (const char* text : {"a", "0,", ",1", "0;1", "-1,0", "0, 1", "99999999999,1"})
    CHECK_THAT(refusal(text, 2), Catch::Contains("numbers of GPUs"));
}
