#include <fmt/core.h>

#include <catch2/catch.hpp>

#include "tests/src/reference/block_check.hpp"
#include "tests/src/reference/synthetic_model.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

std::vector<LayerErrors> check_model(const std::string& name, const OracleDump& dump) {
  const SyntheticModel model(name);
  const Checkpoint checkpoint = model.open();
  const auto weights = reference::model_weights(checkpoint, 0, 1);
  reference::ThreadPool pool(2);
  std::vector<LayerErrors> layers;
  for (const std::string& layer : layers_in(dump, checkpoint.config())) {
    layers.push_back(check_layer(dump, checkpoint, weights, pool, layer));
  }
  return layers;
}

void require_within_limits(const std::vector<LayerErrors>& layers) {
  REQUIRE_FALSE(layers.empty());
  for (const LayerErrors& layer : layers) {
    for (const BlockError& error : layer.blocks) {
      CAPTURE(error.name, error.all, error.limit, error.worst, error.worst_limit);
      CHECK(error.ok());
    }
    for (const ChoiceError& error : layer.choices) {
      CAPTURE(error.name, error.rows, error.different, error.near_ties);
      CHECK(error.rows > 0);
      CHECK(error.different == 0);
    }
  }
}

}  // namespace

TEST_CASE("every block agrees with the oracle on the oracle's input", "[cpu][reference]") {
  const std::string name = GENERATE("tiny", "tiny-tp", "mix");
  CAPTURE(name);
  require_within_limits(check_model(name, OracleDump(golden_dump(name))));
}

// Every layer and every row, from dumps that tools/make_reference_goldens.py --full writes.
TEST_CASE("every block of every layer agrees with the oracle", "[.oracle]") {
  const std::string name = GENERATE("tiny", "tiny-tp", "mix");
  CAPTURE(name);
  const OracleDump dump(golden_dir() / "reference" / "full" / (name + ".safetensors"));
  const std::vector<LayerErrors> layers = check_model(name, dump);
  fmt::print("{}", error_table(name, layers));
  require_within_limits(layers);
}
