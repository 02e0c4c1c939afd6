#include "src/weights/synth.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "src/weights/open_checkpoint.hpp"
#include "src/weights/synth_values.hpp"
#include "tests/support/sha256.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
namespace fs = std::filesystem;

namespace {

fs::path golden(const char* name) {
  return test::golden_dir() / "checkpoint" / name;
}

SynthOptions options(const char* config, const fs::path& out) {
  SynthOptions made;
  made.config_json = golden(config);
  made.seed = 1;
  made.out = out;
  made.threads = 2;
  return made;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("sha256 gives the standard's own examples", "[cpu][support]") {
  CHECK(test::sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(test::sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST_CASE("the synthetic tiny checkpoint is byte for byte the reference one", "[cpu][synth]") {
  const test::TempDir dir;
  const int threads = GENERATE(1, 3);
  SynthOptions made = options("tiny.json", dir / "tiny");
  made.threads = threads;
  std::uint64_t last_done = 0;
  std::uint64_t total = 0;
  value_or_throw(write_synthetic_checkpoint(made, [&](std::uint64_t done, std::uint64_t all) {
    CHECK(done > last_done);
    last_done = done;
    total = all;
  }));
  CHECK(last_done == total);
  CHECK(test::sha256(test::read_file(dir / "tiny/model.safetensors")) ==
        "04d09a6002e0851ed82abbcfd16e70deaa1b6a03249bd9ddbe4397d9cd2af2bf");
  CHECK(test::sha256(test::read_file(dir / "tiny/config.json")) ==
        "7fbcba79c117ace76a4bcd8031bc83bcf65616f945ec33870144098e8970de49");
  CHECK(!fs::exists(dir / "tiny/model.safetensors.partial"));
  CHECK(std::distance(fs::directory_iterator(dir / "tiny"), fs::directory_iterator()) == 2);
}

TEST_CASE("another shape and a large seed also match", "[cpu][synth]") {
  const test::TempDir dir;
  SynthOptions made = options("tiny-tp.json", dir / "out");
  made.seed = 12345678901234567;
  value_or_throw(write_synthetic_checkpoint(made, nullptr));
  CHECK(test::sha256(test::read_file(dir / "out/model.safetensors")) ==
        "f21d500e8c62e7913f60f08b6143923eaf16c29cffb77d59936a953c3ac34d56");
}

TEST_CASE("a synthetic checkpoint opens complete and its values are sound", "[cpu][synth]") {
  const test::TempDir dir;
  value_or_throw(write_synthetic_checkpoint(options("tiny.json", dir / "out"), nullptr));
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(dir / "out"));
  CHECK(checkpoint.tensors().size() == tensor_table(checkpoint.config()).size());
  Problems problems;
  check_all_values(checkpoint, 2, problems);
  CHECK(problems.empty());
}

TEST_CASE("a part of a synthetic tensor is the same as in the whole", "[cpu][synth]") {
  const ModelConfig config = value_or_throw(read_model_config(golden("tiny.json")));
  const std::vector<TensorSpec> table = tensor_table(config);
  const std::vector<int> exponents = synth_exponents(config, table);
  for (std::size_t i = 0; i < 60; ++i) {
    const auto width = static_cast<std::size_t>(dtype_bytes(table[i].dtype));
    std::size_t elements = 1;
    for (const std::int64_t size : table[i].shape)
      elements *= static_cast<std::size_t>(size);
    const SynthTensor tensor(table[i], config, exponents[i], 9);
    std::vector<std::byte> whole(elements * width);
    tensor.fill(0, whole);
    const std::size_t first = elements / 3;
    std::vector<std::byte> part((elements - first) * width);
    tensor.fill(first, part);
    CAPTURE(table[i].name);
    CHECK(std::equal(part.begin(), part.end(), whole.begin() + static_cast<long>(first * width)));
  }
}

TEST_CASE("with a tokenizer the synthetic folder is a whole model", "[cpu][synth]") {
  const test::TempDir dir;
  fs::create_directories(dir / "plain");
  test::write_file(dir / "plain/tokenizer.json", R"({"model": {}})");
  test::write_file(dir / "plain/tokenizer_config.json", "{}");
  SynthOptions made = options("tiny.json", dir / "out");
  SECTION("from a folder") {
    made.tokenizer = dir / "plain";
  }
  SECTION("from a file") {
    made.tokenizer = dir / "plain/tokenizer.json";
  }
  value_or_throw(write_synthetic_checkpoint(made, nullptr));
  CHECK(test::read_file(dir / "out/tokenizer.json") == R"({"model": {}})");
  CHECK(test::read_file(dir / "out/tokenizer_config.json") == "{}");
  CHECK(!fs::exists(dir / "out/generation_config.json"));
}

TEST_CASE("a compressed tokenizer is written decompressed", "[cpu][synth]") {
  const test::TempDir dir;
  // "{\"model\": {}}\n" as `zstd` packs it.
  const std::string packed = {'\x28', '\xb5', '\x2f', '\xfd', '\x20', '\x0e', '\x71', '\x00',
                              '\x00', '{',    '"',    'm',    'o',    'd',    'e',    'l',
                              '"',    ':',    ' ',    '{',    '}',    '}',    '\n'};
  test::write_file(dir / "tokenizer.json.zst", packed);
  SynthOptions made = options("tiny.json", dir / "out");
  made.tokenizer = dir.path();
  value_or_throw(write_synthetic_checkpoint(made, nullptr));
  CHECK(test::read_file(dir / "out/tokenizer.json") == "{\"model\": {}}\n");

  test::write_file(dir / "tokenizer.json.zst", packed.substr(0, packed.size() - 3));
  made.out = dir / "out2";
  const auto cut = write_synthetic_checkpoint(made, nullptr);
  REQUIRE(!cut);
  CHECK(cut.error().code == ErrorCode::corrupt);
  CHECK(contains(cut.error().message, "tokenizer.json.zst"));
  CHECK(!fs::exists(dir / "out2/config.json"));
}

TEST_CASE("a missing tokenizer is refused before anything is written", "[cpu][synth]") {
  const test::TempDir dir;
  SynthOptions made = options("tiny.json", dir / "out");
  made.tokenizer = GENERATE_REF(fs::path(dir / "absent"), fs::path(dir.path()));
  const auto result = write_synthetic_checkpoint(made, nullptr);
  REQUIRE(!result);
  CHECK(result.error().code == ErrorCode::not_found);
  CHECK(!fs::exists(dir / "out"));
}

TEST_CASE("a folder that holds something is written only by force", "[cpu][synth]") {
  const test::TempDir dir;
  test::write_file(dir / "notes.txt", "mine");
  SynthOptions made = options("tiny.json", dir.path());
  const auto refused = write_synthetic_checkpoint(made, nullptr);
  REQUIRE(!refused);
  CHECK(refused.error().code == ErrorCode::invalid_argument);
  CHECK(contains(refused.error().message, "--force"));
  CHECK(!fs::exists(dir / "model.safetensors"));
  made.force = true;
  value_or_throw(write_synthetic_checkpoint(made, nullptr));
  made.seed = 2;
  value_or_throw(write_synthetic_checkpoint(made, nullptr));
  CHECK(test::read_file(dir / "notes.txt") == "mine");
  CHECK(open_checkpoint(dir.path()));
}

TEST_CASE("force never mixes two checkpoints", "[cpu][synth]") {
  const test::TempDir dir;
  const char* name = GENERATE("model-00001-of-00046.safetensors", "model.safetensors.index.json");
  test::write_file(dir / name, "theirs");
  SynthOptions made = options("tiny.json", dir.path());
  made.force = true;
  const auto refused = write_synthetic_checkpoint(made, nullptr);
  REQUIRE(!refused);
  CHECK(contains(refused.error().message, name));
  CHECK(test::read_file(dir / name) == "theirs");
}

TEST_CASE("what an interrupted run left is overwritten by the next", "[cpu][synth]") {
  const test::TempDir dir;
  test::write_file(dir / "model.safetensors.partial", std::string(1000, 'x'));
  value_or_throw(write_synthetic_checkpoint(options("tiny.json", dir.path()), nullptr));
  CHECK(!fs::exists(dir / "model.safetensors.partial"));
  CHECK(open_checkpoint(dir.path()));
}

TEST_CASE("two runs never write one folder at a time", "[cpu][synth]") {
  const test::TempDir dir;
  const int other = ::open((dir / "model.safetensors.partial").c_str(), O_RDWR | O_CREAT, 0644);
  REQUIRE(::flock(other, LOCK_EX) == 0);
  const auto refused = write_synthetic_checkpoint(options("tiny.json", dir.path()), nullptr);
  ::close(other);
  REQUIRE(!refused);
  CHECK(contains(refused.error().message, "another run is writing it"));
  CHECK(fs::exists(dir / "model.safetensors.partial"));
  CHECK(write_synthetic_checkpoint(options("tiny.json", dir.path()), nullptr));
}

TEST_CASE("a checkpoint beyond the disk is refused before any work", "[cpu][synth]") {
  const test::TempDir dir;
  auto config = nlohmann::json::parse(test::read_file(golden("tiny.json")));
  config["hidden_size"] = 1048576;
  config["vocab_size"] = 16777216;  // 35 TB of embedding, and as much of head
  test::write_file(dir / "huge.json", config.dump());
  SynthOptions made = options("tiny.json", dir / "out");
  made.config_json = dir / "huge.json";
  bool worked = false;
  const auto refused =
      write_synthetic_checkpoint(made, [&](std::uint64_t, std::uint64_t) { worked = true; });
  REQUIRE(!refused);
  CHECK(refused.error().code == ErrorCode::io);
  CHECK(!worked);
  CHECK(fs::is_empty(dir / "out"));
}

TEST_CASE("a target that is a file, and experts that are no power of two, are refused",
          "[cpu][synth]") {
  const test::TempDir dir;
  test::write_file(dir / "file", "");
  const auto file = write_synthetic_checkpoint(options("tiny.json", dir / "file"), nullptr);
  REQUIRE(!file);
  CHECK(file.error().code == ErrorCode::invalid_argument);

  auto config = nlohmann::json::parse(test::read_file(golden("tiny.json")));
  config["n_routed_experts"] = 6;
  test::write_file(dir / "six.json", config.dump());
  SynthOptions made = options("tiny.json", dir / "out");
  made.config_json = dir / "six.json";
  const auto six = write_synthetic_checkpoint(made, nullptr);
  REQUIRE(!six);
  CHECK(contains(six.error().message, "power of two"));
}
