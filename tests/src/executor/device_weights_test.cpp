// DeviceWeights on a card in host memory; tests/gpu has the same cases for a real one.
#include "src/executor/device_weights.hpp"

#include <catch2/catch.hpp>

#include "src/weights/open_checkpoint.hpp"
#include "tests/support/device_weights_check.hpp"
#include "tests/support/host_card.hpp"
#include "tests/support/weight_models.hpp"

using namespace ingot;

namespace {

constexpr std::uint64_t kCardBytes = std::uint64_t{1} << 30;

/// Runs `work` with a context of a card, and wants everything back afterwards.
template <class Work>
void with_card(std::uint64_t bytes, const Work& work) {
  const test::HostCard card(bytes);
  {
    const cu::Context context = cu::Context::retain(card.driver(), 0);
    work(context);
  }
  CHECK(card.live_objects() == 0);
  CHECK(card.free_bytes() == bytes);
}

}  // namespace

TEST_CASE("every rank's weights are in the card's memory as its kernels read them",
          "[cpu][executor]") {
  with_card(kCardBytes, [](const cu::Context& context) {
    test::check_device_loading(context, "tiny", 0, 1);
    test::check_device_loading(context, "tiny-tp", 1, 2);
  });
}

TEST_CASE("a loading that fails leaves nothing on the card", "[cpu][executor]") {
  with_card(kCardBytes, [](const cu::Context& context) { test::check_device_refusals(context); });
}

TEST_CASE("synthetic weights fill a card's memory", "[cpu][executor]") {
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(test::weight_model("tiny-tp")));
  with_card(kCardBytes, [&](const cu::Context& context) {
    test::check_device_synthetic(context, checkpoint.config(), {.tp_rank = 1, .tp_size = 2});
    test::check_device_synthetic(context, checkpoint.config(), {.max_layers = 3});
  });
}

TEST_CASE("a card that is too small is named with what it would take", "[cpu][executor]") {
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(test::weight_model("tiny")));
  with_card(1 << 20, [&](const cu::Context& context) {
    for (const auto& weights :
         {executor::DeviceWeights::load(context, checkpoint, {}),
          executor::DeviceWeights::synthetic(context, checkpoint.config(), {})}) {
      REQUIRE_FALSE(weights);
      CHECK(weights.error().code == ErrorCode::cuda);
      CHECK_THAT(weights.error().message,
                 Catch::Contains("host card") && Catch::Contains("1048576") &&
                     Catch::Contains(
                         std::to_string(executor::device_weight_bytes(checkpoint.config(), {}))));
    }
  });
}
