#include "src/executor/weight_loader.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <stdexcept>

#include "src/weights/open_checkpoint.hpp"
#include "tests/support/device_weights_check.hpp"
#include "tests/support/memory_weight_store.hpp"
#include "tests/support/weight_models.hpp"

using namespace ingot;

namespace {

std::vector<std::byte> from_memory(const void* address, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(address);
  return {first, first + bytes};
}

/// A rank's weights in host memory.
struct LoadedRank {
  test::MemoryWeightStore store;
  executor::WeightPlacement placement;

  LoadedRank(const ModelConfig& config, const executor::WeightOptions& options)
      : store(executor::device_weight_bytes(config, options)),
        placement(executor::place_weights(config, options, store.base())) {}
};

/// What loading a damaged model throws.
Error load_error(const test::DamagedModel& model) {
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(model.path()));
  LoadedRank rank(checkpoint.config(), {});
  try {
    executor::load_weights(checkpoint, rank.placement, rank.store, {.threads = 3}, {});
  } catch (const EngineError& error) {
    CHECK(rank.store.open_writers() == 0);
    return error.error();
  }
  FAIL("the damaged checkpoint was loaded");
  return {ErrorCode::io, ""};
}

}  // namespace

TEST_CASE("every weight of every rank comes back from its device layout", "[cpu][executor]") {
  struct Case {
    const char* model;
    int tp_size, threads;
    std::size_t staging_bytes;
  };
  // 1 byte: pieces of one strip each.
  const auto c = GENERATE(values<Case>({{"tiny", 1, 3, std::size_t{16} << 20},
                                        {"tiny", 1, 2, 1},
                                        {"tiny-tp", 1, 1, 50'000},
                                        {"tiny-tp", 2, 2, 50'000},
                                        {"tiny-tp", 4, 2, std::size_t{1} << 20},
                                        {"tiny-tp", 8, 3, 20'000}}));
  CAPTURE(c.model, c.tp_size, c.threads, c.staging_bytes);
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(test::weight_model(c.model)));
  for (int rank = 0; rank < c.tp_size; ++rank) {
    CAPTURE(rank);
    LoadedRank loaded(checkpoint.config(), {.tp_rank = rank, .tp_size = c.tp_size});
    executor::load_weights(checkpoint, loaded.placement, loaded.store,
                           {.threads = c.threads, .staging_bytes = c.staging_bytes}, {});
    CHECK(loaded.store.open_writers() == 0);
    test::check_weights(checkpoint, loaded.placement.views, rank, c.tp_size, from_memory);
  }
}

TEST_CASE("loading tells its progress up to the end", "[cpu][executor]") {
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(test::weight_model("tiny")));
  LoadedRank rank(checkpoint.config(), {});
  std::uint64_t last = 0, all = 0;
  bool ascends = true;
  executor::load_weights(checkpoint, rank.placement, rank.store, {.threads = 2},
                         [&](std::uint64_t done, std::uint64_t total) {
                           ascends = ascends && done >= last && done <= total;
                           last = done;
                           all = total;
                         });
  CHECK(ascends);
  CHECK(last == all);
  // All that is placed, without what aligns it.
  CHECK(all <= rank.placement.bytes);
  CHECK(all > rank.placement.bytes - 256 * rank.placement.parts.size());
}

TEST_CASE("what a progress callback throws ends the loading", "[cpu][executor]") {
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(test::weight_model("tiny")));
  LoadedRank rank(checkpoint.config(), {});
  CHECK_THROWS_AS(
      executor::load_weights(checkpoint, rank.placement, rank.store, {.threads = 2},
                             [](std::uint64_t, std::uint64_t) { throw std::range_error("stop"); }),
      std::range_error);
  CHECK(rank.store.open_writers() == 0);
}

TEST_CASE("a card that fails ends the loading with one error", "[cpu][executor]") {
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(test::weight_model("tiny")));
  LoadedRank rank(checkpoint.config(), {});
  rank.store.fail_after(20);
  CHECK_THROWS_WITH(
      executor::load_weights(checkpoint, rank.placement, rank.store, {.threads = 3}, {}),
      "the card has gone");
  CHECK(rank.store.open_writers() == 0);
}

TEST_CASE("a NaN scale is refused with its tensor's name", "[cpu][executor]") {
  const std::string nan = "\xff";
  const auto tensor = GENERATE(as<std::string>(), "layers.1.attn.wo_b.scale",
                               "layers.2.ffn.experts.3.w1.scale", "layers.4.ffn.experts.7.w3.scale",
                               "mtp.0.ffn.experts.0.w2.scale", "layers.3.attn.wkv.scale");
  const Error error = load_error(test::DamagedModel({{tensor, 3, nan}}));
  CHECK(error.code == ErrorCode::corrupt);
  CHECK_THAT(error.message, Catch::Contains(tensor) && Catch::Contains("scale byte 255 (NaN)") &&
                                Catch::Contains("model.safetensors"));
}

TEST_CASE("a parameter that is not finite is refused with its name, a row of the vocabulary is not",
          "[cpu][executor]") {
  const auto [tensor, bytes] = GENERATE(table<std::string, std::string>({
      {"layers.4.ffn.gate.bias", std::string("\0\0\xc0\x7f", 4)},
      {"layers.4.ffn.gate.weight", std::string("\xc0\x7f", 2)},
      {"layers.1.attn.attn_sink", std::string("\0\0\x80\x7f", 4)},
      {"norm.weight", std::string("\x80\xff", 2)},
  }));
  CAPTURE(tensor);
  const Error error = load_error(test::DamagedModel({{tensor, 0, bytes}}));
  CHECK(error.code == ErrorCode::corrupt);
  CHECK_THAT(error.message, Catch::Contains(tensor) && Catch::Contains("not finite"));

  const test::DamagedModel word({{"embed.weight", 0, std::string("\xc0\x7f", 2)}});
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(word.path()));
  LoadedRank rank(checkpoint.config(), {});
  executor::load_weights(checkpoint, rank.placement, rank.store, {.threads = 3}, {});
}

TEST_CASE("the first of several damaged tensors is the one that is named", "[cpu][executor]") {
  std::vector<test::Damage> all;
  for (int expert = 0; expert < 8; ++expert)
    all.push_back({fmt::format("layers.2.ffn.experts.{}.w2.scale", expert), 0, "\xff"});
  const test::DamagedModel damaged(all);
  for (int run = 0; run < 5; ++run)
    CHECK_THAT(load_error(damaged).message, Catch::Contains("layers.2.ffn.experts.0.w2.scale"));
}

TEST_CASE("a scale that the kernels cannot take is refused with the expert's name",
          "[cpu][executor]") {
  const Error error = load_error(
      test::DamagedModel({{"layers.2.ffn.experts.3.w2.scale", 0, std::string(8, '\0')}}));
  CHECK(error.code == ErrorCode::unsupported);
  CHECK_THAT(error.message,
             Catch::Contains("layers.2.ffn.experts.3.w2.weight") && Catch::Contains("2^-127"));
}

TEST_CASE("an expert that does not exist is refused with the table's name", "[cpu][executor]") {
  const std::string id = GENERATE(as<std::string>(), std::string("\x08\0\0\0\0\0\0\0", 8),
                                  std::string("\0\0\0\0\0\0\0\x80", 8));
  const Error error = load_error(test::DamagedModel({{"layers.0.ffn.gate.tid2eid", 16, id}}));
  CHECK(error.code == ErrorCode::corrupt);
  CHECK_THAT(error.message,
             Catch::Contains("layers.0.ffn.gate.tid2eid") && Catch::Contains("experts are 0 to 7"));
}
