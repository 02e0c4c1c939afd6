#include "src/cli/inspect_command.hpp"

#include <catch2/catch.hpp>
#include <ctime>
#include <nlohmann/json.hpp>

#include "src/weights/synth.hpp"
#include "tests/support/made_checkpoint.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/standard_error.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

struct Inspected {
  int status = -1;
  std::string out;
  std::string err;
  double cpu_seconds = 0;  ///< not wall time: tests share the machine with others

  json parsed() const { return json::parse(out); }
};

Inspected inspect(const InspectOptions& options) {
  const test::TempDir dir;
  Inspected result;
  std::FILE* out = std::fopen((dir / "out").c_str(), "w");
  const std::clock_t start = std::clock();
  result.err = test::standard_error_of([&] { result.status = run_inspect(options, out); });
  result.cpu_seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  std::fclose(out);
  result.out = test::read_file(dir / "out");
  return result;
}

std::string golden(const char* name) {
  return test::read_file(test::golden_dir() / "checkpoint" / name);
}

void write_tiny(const fs::path& out, const char* config) {
  SynthOptions options;
  options.config_json = test::golden_dir() / "checkpoint" / config;
  options.seed = 1;
  options.out = out;
  value_or_throw(write_synthetic_checkpoint(options, nullptr));
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a sparse V4-Flash checkpoint is inspected in under 2 s, to the byte", "[cpu][inspect]") {
  const test::TempDir dir;
  test::write_sparse_checkpoint(dir.path(), golden("deepseek-v4-flash.json"), 46, true);
  InspectOptions options{.model = dir.path(), .tp = 4, .json = true};
  const Inspected result = inspect(options);
  if (!test::kSanitized) CHECK(result.cpu_seconds < 2);
  CHECK(result.status == 0);
  CHECK(result.err.empty());
  const json report = result.parsed();
  CHECK(report["flavour"] == "DeepSeek-V4-Flash");
  CHECK(report["tensors"] == 69187);
  CHECK(report["bytes"] == 159'609'485'896);
  CHECK(report["dtypes"]["I8"] == json({{"tensors", 33792}, {"bytes", 141'733'920'768}}));
  CHECK(report["shards"].size() == 46);
  CHECK(report["valid_tp"] == json({1, 2, 4, 8}));
  // Replicated: what is left of the total when vocabulary, attention heads and experts are split.
  const auto sharded = report["tp"]["sharded_bytes_per_rank"].get<std::uint64_t>();
  const auto replicated = report["tp"]["replicated_bytes_per_rank"].get<std::uint64_t>();
  CHECK(4 * sharded + replicated == 159'609'485'896);
  CHECK(report["tp"]["bytes_per_rank"] == sharded + replicated);
  // On a card, ids of experts take a quarter of what they take in the file; the rest is alignment.
  const auto device = report["tp"]["device_bytes_per_rank"].get<std::uint64_t>();
  CHECK(device > sharded + replicated - 18'616'320 / 4 * 3);
  CHECK(device < sharded + replicated - 18'616'320 / 4 * 3 + 256 * 2500);

  options.json = false;
  const std::string text = inspect(options).out;
  CHECK(contains(text, "159,609,485,896"));
  CHECK(contains(text, "69,187"));
  CHECK(contains(text, "layers.*.ffn.experts.*.w1.weight"));
  CHECK(contains(text, "4 ranks"));
  CHECK(contains(text, "of weights in each rank's memory"));
}

TEST_CASE("a memory plan is printed before anything is loaded, or why there is none",
          "[cpu][inspect]") {
  const test::TempDir dir;
  test::write_sparse_checkpoint(dir.path(), golden("deepseek-v4-flash.json"), 46, true);
  const GpuWish wish{.memory_bytes = 96'000'000'000, .max_batch = 8, .context = 131072};
  InspectOptions options{.model = dir.path(), .tp = 2, .gpu = wish, .json = true};
  const Inspected fits = inspect(options);
  CHECK(fits.status == 0);
  const json memory = fits.parsed()["memory"];
  CHECK(memory["weights"] == fits.parsed()["tp"]["device_bytes_per_rank"]);
  CHECK(memory["sequences"] == 24);
  CHECK(memory["context_tokens"] >= 131072);
  std::uint64_t sum = 0;
  for (const char* part :
       {"weights", "buffers", "sequence_bytes", "context_bytes", "reserve", "free"})
    sum += memory[part].get<std::uint64_t>();
  CHECK(sum == 96'000'000'000U);
  options.json = false;
  CHECK(contains(inspect(options).out, "memory of each GPU"));

  // On one such card the weights alone are too much.
  options.tp = 1;
  const Inspected refused = inspect(options);
  CHECK(refused.status == 1);
  CHECK(contains(refused.out, "96.0 GB are free"));
  CHECK(contains(refused.out, "nothing would fit: use a GPU with more memory, or more of them"));
  CHECK(refused.err == "ingot: error: inspecting " + dir.path().string() +
                           ": the model does not fit; the report says what to do\n");
  options.json = true;
  CHECK(contains(inspect(options).parsed()["memory"]["refusal"].get<std::string>(), "too much"));
}

TEST_CASE("V4-Pro, 0731 and other sizes are told apart", "[cpu][inspect]") {
  const test::TempDir dir;
  const auto flavour = [&](const std::string& config) {
    test::write_file(dir / "config.json", config);
    return inspect({.model = dir.path(), .json = true}).parsed()["flavour"].get<std::string>();
  };
  CHECK(flavour(golden("deepseek-v4-pro.json")) == "DeepSeek-V4-Pro");
  CHECK(flavour(golden("tiny.json")) == "DeepSeek-V4, own sizes");
  json config = json::parse(golden("deepseek-v4-flash.json"));
  config["dspark_block_size"] = 5;
  CHECK(flavour(config.dump()) == "DeepSeek-V4-Flash-0731");
}

TEST_CASE("a model whose matrices are no whole tiles is no model for a GPU", "[cpu][inspect]") {
  const test::TempDir dir;
  json config = json::parse(golden("tiny.json"));
  config["head_dim"] = 192;
  test::write_sparse_checkpoint(dir.path(), config.dump(), 1, false);
  InspectOptions options{.model = dir.path(), .tp = 1, .json = true};
  const Inspected machine = inspect(options);
  CHECK(machine.status == 0);
  CHECK(machine.parsed()["tp"]["device_bytes_per_rank"].is_null());
  options.json = false;
  CHECK(contains(inspect(options).out, "layers.0.attn.wkv.weight"));
}

TEST_CASE("every tensor's digest is printed and does not depend on threads", "[cpu][inspect]") {
  const test::TempDir dir;
  write_tiny(dir / "tiny", "tiny.json");
  InspectOptions options{.model = dir / "tiny", .hash = true, .json = true, .threads = 1};
  const json digests = inspect(options).parsed()["xxh3_128"];
  CHECK(digests.size() == 504);
  // XXH3_128 of the tensor's bytes in the reference checkpoint.
  CHECK(digests["norm.weight"] == "326c374659fdb352e0eb762fc5bcf294");
  CHECK(digests["layers.2.ffn.experts.3.w2.weight"] == "7f873ec0afc9cd09fb6255dcab0787f0");
  options.threads = 3;
  CHECK(inspect(options).parsed()["xxh3_128"] == digests);
  options.json = false;
  CHECK(contains(inspect(options).out, "326c374659fdb352e0eb762fc5bcf294  norm.weight\n"));
}

TEST_CASE("all that is wrong is listed at once and the exit status is 2", "[cpu][inspect]") {
  const test::TempDir dir;
  test::write_sparse_checkpoint(dir.path(), golden("tiny.json"), 7, true);
  fs::remove(dir / "model-00003-of-00007.safetensors");
  test::write_file(dir / "model-00005-of-00007.safetensors", "short");
  InspectOptions options{.model = dir.path(), .tp = 2};
  const Inspected text = inspect(options);
  CHECK(text.status == 2);
  CAPTURE(text.out);
  CHECK(contains(text.out, "wrong: 3 problems"));
  CHECK(contains(text.out, "model-00003-of-00007.safetensors is missing"));
  CHECK(contains(text.out, "model-00005-of-00007.safetensors: the file has 5 bytes"));
  CHECK(contains(text.out, "valid tensor-parallel sizes are 1"));
  // Once: on one screen nothing is read twice.
  const std::string told = "ingot: error: inspecting " + dir.path().string() +
                           ": 3 problems; the report says what is wrong and what to do\n";
  CHECK(text.err == told);
  options.json = true;
  const Inspected machine = inspect(options);
  CHECK(machine.status == 2);
  CHECK(machine.err == told);
  CHECK(machine.parsed()["problems"].size() == 3);
  CHECK(machine.parsed()["shards"].size() == 5);
}

TEST_CASE("a folder without a checkpoint is inspected as such", "[cpu][inspect]") {
  const test::TempDir dir;
  const Inspected result = inspect({.model = dir.path(), .hash = true, .json = true});
  CHECK(result.status == 2);
  CHECK(result.parsed()["problems"].size() == 2);
  CHECK(inspect({.model = dir / "absent"}).status == 2);
}

TEST_CASE("hashing finds the NaN scale that a header cannot show", "[cpu][inspect]") {
  const test::TempDir dir;
  write_tiny(dir / "tiny", "tiny.json");
  const fs::path model = dir / "tiny/model.safetensors";
  std::string bytes = test::read_file(model);
  const std::size_t data = bytes.find(R"("layers.1.attn.wkv.scale")");
  const std::size_t at = bytes.find("data_offsets\":[", data) + 15;
  const std::size_t length = static_cast<unsigned char>(bytes[0]) +
                             256u * static_cast<unsigned char>(bytes[1]) +
                             65536u * static_cast<unsigned char>(bytes[2]);
  bytes[8 + length + std::stoul(bytes.substr(at, 20))] = '\xff';
  test::write_file(model, bytes);
  CHECK(inspect({.model = dir / "tiny"}).status == 0);
  const Inspected result = inspect({.model = dir / "tiny", .hash = true});
  CHECK(result.status == 2);
  CHECK(contains(result.out, "\"layers.1.attn.wkv.scale\" of " + model.string() +
                                 " has the scale byte 255 (NaN) in row 0, column 0"));
}

TEST_CASE("names that are not UTF-8 do not break the JSON report", "[cpu][inspect]") {
  const test::TempDir dir;
  test::write_sparse_checkpoint(dir.path(), golden("tiny.json"), 1, false);
  fs::rename(dir / "model.safetensors", dir / "mod\xff.safetensors");
  const Inspected result = inspect({.model = dir.path(), .json = true});
  CHECK(result.status == 0);
  CHECK(result.parsed()["tensors"] == 504);
}
