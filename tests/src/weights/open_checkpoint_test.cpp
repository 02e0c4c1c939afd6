#include "src/weights/open_checkpoint.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/made_checkpoint.hpp"
#include "tests/support/peak_memory.hpp"
#include "tests/support/safetensors_file.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using test::SafetensorsFile;
namespace fs = std::filesystem;

namespace {

std::string golden(const char* name) {
  return test::read_file(test::golden_dir() / "checkpoint" / name);
}

/// A checkpoint of tiny.json whose values are all zero: embed in shard 1, layer L in shard L + 2,
/// the rest in shard 7.
struct TinyCheckpoint {
  explicit TinyCheckpoint(int shards = 7, bool with_index = true) {
    test::write_sparse_checkpoint(dir.path(), golden("tiny.json"), shards, with_index);
  }
  fs::path shard(int number) const {
    return dir / ("model-0000" + std::to_string(number) + "-of-00007.safetensors");
  }
  /// Takes a shard apart, hands it to `change` and writes it back.
  template <class Change>
  void edit(int number, Change change) const {
    SafetensorsFile file = SafetensorsFile::read(shard(number));
    change(file);
    file.write(shard(number));
  }
  template <class Change>
  void edit_json(const char* name, Change change) const {
    auto json = nlohmann::ordered_json::parse(test::read_file(dir / name));
    change(json);
    test::write_file(dir / name, json.dump());
  }
  void drop_index() const { fs::remove(dir / "model.safetensors.index.json"); }

  Error refusal() const {
    const auto opened = open_checkpoint(dir.path());
    REQUIRE(!opened);
    CHECK(exit_status(opened.error().code) == 2);
    CHECK(opened.error().message.find(dir.path().string()) != std::string::npos);
    return opened.error();
  }
  std::string message() const { return refusal().message; }

  test::TempDir dir;
};

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

int lines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n')) + 1;
}

}  // namespace

TEST_CASE("one or many shards open, with or without an index", "[cpu][weights]") {
  const auto [shards, with_index] =
      GENERATE(table<int, bool>({{1, false}, {1, true}, {7, false}, {7, true}}));
  const TinyCheckpoint tiny(shards, with_index);
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(tiny.dir.path()));
  CHECK(checkpoint.shards().size() == static_cast<std::size_t>(shards));
  CHECK(checkpoint.tensors().size() == 504);
  const TensorView& tensor = checkpoint.tensor("layers.2.attn.compressor.ape");
  CHECK(tensor.dtype == Dtype::f32);
  CHECK(tensor.shape == std::vector<std::int64_t>{4, 1024});
  CHECK(tensor.bytes.size() == 16384);
  CHECK(checkpoint.find("layers.9.attn_norm.weight") == nullptr);
  CHECK_THROWS_AS(checkpoint.tensor("layers.9.attn_norm.weight"), EngineError);
}

TEST_CASE("missing shards are all listed, without their tensors one by one", "[cpu][weights]") {
  const bool with_index = GENERATE(true, false);
  const TinyCheckpoint tiny(7, with_index);
  fs::remove(tiny.shard(2));
  fs::remove(tiny.shard(5));
  const std::string message = tiny.message();
  CAPTURE(message);
  CHECK(lines(message) == 3);
  CHECK(contains(message, tiny.shard(2).string() + " is missing"));
  CHECK(contains(message, tiny.shard(5).string() + " is missing"));
}

TEST_CASE("missing tensors and scales are all listed", "[cpu][weights]") {
  const TinyCheckpoint tiny;
  const bool with_index = GENERATE(true, false);
  tiny.edit(2, [](SafetensorsFile& file) {
    file.remove("layers.0.attn.wq_b.scale");
    file.remove("layers.0.ffn.gate.tid2eid");
  });
  tiny.edit(4, [](SafetensorsFile& file) { file.remove("layers.2.ffn.experts.3.w2.scale"); });
  if (with_index) {
    tiny.edit_json("model.safetensors.index.json", [](auto& index) {
      index["weight_map"].erase("layers.0.attn.wq_b.scale");
      index["weight_map"].erase("layers.0.ffn.gate.tid2eid");
      index["weight_map"].erase("layers.2.ffn.experts.3.w2.scale");
    });
  } else {
    tiny.drop_index();
  }
  const Error error = tiny.refusal();
  CHECK(error.code == ErrorCode::not_found);
  CAPTURE(error.message);
  CHECK(lines(error.message) == 4);
  CHECK(contains(error.message, "layers.0.attn.wq_b.scale (F8_E8M0 [32, 1]) is missing"));
  CHECK(contains(error.message, "layers.0.ffn.gate.tid2eid (I64 [512, 2]) is missing"));
  CHECK(contains(error.message, "layers.2.ffn.experts.3.w2.scale (F8_E8M0 [256, 4]) is missing"));
}

TEST_CASE("a tensor that only the index knows is missing from its shard", "[cpu][weights]") {
  const TinyCheckpoint tiny;
  tiny.edit(3, [](SafetensorsFile& file) { file.remove("layers.1.attn_norm.weight"); });
  CHECK(contains(tiny.message(), "\"layers.1.attn_norm.weight\" is not in " +
                                     tiny.shard(3).string() + ", where the index puts it"));
}

TEST_CASE("a block of which nothing is there takes one line", "[cpu][weights]") {
  const TinyCheckpoint tiny;
  tiny.drop_index();
  tiny.edit(5, [](SafetensorsFile& file) {
    file.header = nlohmann::ordered_json::object();
    file.data.clear();
  });
  const std::string message = tiny.message();
  CHECK(lines(message) == 1);
  CHECK(contains(message, "tensors of layers.3 are missing"));
}

TEST_CASE("tensor in two shards", "[cpu][weights]") {
  const TinyCheckpoint tiny;
  tiny.edit(3, [](SafetensorsFile& file) {
    file.add("layers.0.attn_norm.weight", "BF16", {256}, std::string(512, '\0'));
  });
  const std::string message = tiny.message();
  CHECK(contains(message, "\"layers.0.attn_norm.weight\" is in two shards"));
  CHECK(contains(message, tiny.shard(2).string()));
  CHECK(contains(message, tiny.shard(3).string()));
}

TEST_CASE("tensor in another shard than the index says", "[cpu][weights]") {
  const TinyCheckpoint tiny;
  tiny.edit_json("model.safetensors.index.json", [](auto& index) {
    index["weight_map"]["norm.weight"] = "model-00001-of-00007.safetensors";
  });
  CHECK(contains(tiny.message(), "the index puts it in model-00001-of-00007.safetensors"));
}

TEST_CASE("tensor not in the index", "[cpu][weights]") {
  const TinyCheckpoint tiny;
  tiny.edit_json("model.safetensors.index.json",
                 [](auto& index) { index["weight_map"].erase("norm.weight"); });
  CHECK(contains(tiny.message(),
                 "\"norm.weight\" of " + tiny.shard(7).string() + " is not in the index"));
}

TEST_CASE("index that leads out of the folder", "[cpu][weights]") {
  const TinyCheckpoint tiny;
  tiny.edit_json("model.safetensors.index.json", [](auto& index) {
    index["weight_map"]["norm.weight"] = "../model-00007-of-00007.safetensors";
  });
  const std::string message = tiny.message();
  CHECK(lines(message) == 1);
  CHECK(contains(message, "../model-00007-of-00007.safetensors"));
}

TEST_CASE("wrong dtypes and shapes are all listed", "[cpu][weights]") {
  const TinyCheckpoint tiny;
  tiny.edit(2, [](SafetensorsFile& file) {
    file.header["layers.0.attn_norm.weight"]["dtype"] = "F16";
    file.header["layers.0.ffn.experts.1.w1.weight"]["dtype"] = "F8_E4M3";
    file.header["layers.0.attn.wkv.weight"]["shape"] = {256, 512};
    file.header["layers.0.attn.attn_sink"]["shape"] = {8, 1};
    file.header["layers.0.ffn.gate.tid2eid"] = {
        {"dtype", "I32"},
        {"shape", {512, 4}},
        {"data_offsets", file.header["layers.0.ffn.gate.tid2eid"]["data_offsets"]}};
  });
  const std::string message = tiny.message();
  CAPTURE(message);
  CHECK(contains(message,
                 "layers.0.attn_norm.weight of model-00002-of-00007.safetensors is F16, "
                 "not BF16"));
  CHECK(contains(message, "FP8 experts (-Base checkpoints) are not supported"));
  CHECK(contains(message,
                 "layers.0.attn.wkv.weight of model-00002-of-00007.safetensors has shape "
                 "[256, 512], but config.json implies [512, 256]"));
  CHECK(contains(message, "[8, 1], but config.json implies [8]"));
  CHECK(contains(message, "tid2eid of model-00002-of-00007.safetensors is I32, not I64"));
}

TEST_CASE("a part of the model that we do not know is refused, foreign tensors are not",
          "[cpu][weights]") {
  const TinyCheckpoint tiny;
  tiny.drop_index();
  SECTION("unknown part of a layer") {
    tiny.edit(
        2, [](SafetensorsFile& file) { file.add("layers.0.attn.engram.weight", "U8", {1}, "x"); });
    const Error error = tiny.refusal();
    CHECK(error.code == ErrorCode::unsupported);
    CHECK(contains(error.message, "layers.0.attn.engram.weight"));
  }
  SECTION("a layer beyond the config's") {
    tiny.edit(2, [](SafetensorsFile& file) {
      file.add("layers.5.attn_norm.weight", "BF16", {256}, std::string(512, '\0'));
    });
    CHECK(contains(tiny.message(), "layers.5.attn_norm.weight"));
  }
  SECTION("foreign tensor") {
    tiny.edit(2, [](SafetensorsFile& file) { file.add("vision.patch", "U8", {1}, "x"); });
    Problems problems;
    const Checkpoint checkpoint = value_or_throw(open_checkpoint(tiny.dir.path()));
    const auto notes = check_complete(checkpoint, problems);
    REQUIRE(notes.size() == 1);
    CHECK(contains(notes[0], "1 tensor ignored: no part of the model"));
  }
}

TEST_CASE("a DSpark checkpoint loads its trunk and says that its draft is ignored",
          "[cpu][weights]") {
  const TinyCheckpoint tiny;
  tiny.drop_index();
  tiny.edit_json("config.json", [](auto& config) {
    config["dspark_block_size"] = 5;
    config["dspark_target_layer_ids"] = {2, 3, 4};
    config["compress_ratios"].push_back(0);
    config["compress_ratios"].push_back(0);
  });
  // Shard 7 still holds mtp.0.* with the meaning of MTP; the config alone decides.
  tiny.edit(7, [](SafetensorsFile& file) {
    file.add("mtp.0.main_norm.weight", "BF16", {256}, std::string(512, '\0'));
    file.add("mtp.2.markov_head.markov_w1", "BF16", {512, 4}, std::string(4096, '\0'));
  });
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(tiny.dir.path()));
  CHECK(checkpoint.config().draft == DraftKind::dspark);
  Problems problems;
  const auto notes = check_complete(checkpoint, problems);
  CHECK(problems.empty());
  REQUIRE(notes.size() == 1);
  CHECK(contains(notes[0], "DSpark draft module"));
  CHECK(contains(notes[0], "ignored"));
}

TEST_CASE("scale byte 255 is found where it lies", "[cpu][weights]") {
  const TinyCheckpoint tiny;
  tiny.edit(3, [](SafetensorsFile& file) {
    const auto at = [&](const char* name) {
      return file.header[name]["data_offsets"][0].template get<std::size_t>();
    };
    file.data[at("layers.1.ffn.experts.3.w2.scale") + 4 * 17 + 2] = '\xff';
    file.data[at("layers.1.attn.wq_b.scale") + 31] = '\xff';
    file.data[at("layers.1.attn.wkv.weight")] = '\x7e';  // any byte is a value there
  });
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(tiny.dir.path()));
  Problems problems;
  check_all_values(checkpoint, ValueChecks::loading, GENERATE(1, 3), problems);
  REQUIRE(problems.size() == 2);
  for (const Problem& problem : problems.list())
    CHECK(problem.code == ErrorCode::corrupt);
  CHECK(contains(problems.list()[0].text, "\"layers.1.attn.wq_b.scale\""));
  CHECK(contains(problems.list()[0].text, "row 31, column 0"));
  CHECK(contains(problems.list()[1].text, tiny.shard(3).string()));
  CHECK(contains(problems.list()[1].text, "row 17, column 2"));
}

TEST_CASE("a value that is not finite is found where it lies, when all values are checked",
          "[cpu][weights]") {
  const TinyCheckpoint tiny;
  tiny.edit(3, [](SafetensorsFile& file) {
    const auto at = [&](const char* name) {
      return file.header[name]["data_offsets"][0].template get<std::size_t>();
    };
    file.data[at("layers.1.attn.wkv.weight") + 256 * 3 + 5] = '\x7f';           // fp8 NaN
    file.data.replace(at("layers.1.attn_norm.weight") + 2 * 7, 2, "\x80\xff");  // bf16 -inf
    file.data[at("layers.1.attn.wq_a.weight")] = '\x7e';                        // fp8 448: a number
  });
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(tiny.dir.path()));
  Problems loading;
  check_all_values(checkpoint, ValueChecks::loading, 2, loading);
  REQUIRE(loading.size() == 1);  // an fp8 weight is not looked at, a norm is
  CHECK(contains(loading.list()[0].text, "\"layers.1.attn_norm.weight\""));
  Problems all;
  check_all_values(checkpoint, ValueChecks::all, 2, all);
  REQUIRE(all.size() == 2);
  const std::string told = all.list()[0].text + all.list()[1].text;
  CHECK(contains(told, "\"layers.1.attn.wkv.weight\""));
  CHECK(contains(told, "row 3, column 5"));
  CHECK(contains(told, "\"layers.1.attn_norm.weight\""));
}

TEST_CASE("no value that is finite is taken for one that is not, and none is missed",
          "[cpu][weights]") {
  const auto bytes_of = [](const auto& values) { return std::as_bytes(std::span(values)); };
  std::vector<std::uint16_t> all;
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto value = static_cast<std::uint16_t>(bits);
    const bool finite = (bits & 0x7F80) != 0x7F80;
    if (finite) all.push_back(value);
    // At every place of eight bytes, and behind them.
    for (std::size_t place = 0; place < 5 && (bits % 64 == 0 || !finite); ++place) {
      std::vector<std::uint16_t> some{0, 0x7F7F, 0xFF7F, 0x8000, 1};
      some[place] = value;
      if (all_finite(bytes_of(some), Dtype::bf16) != finite) FAIL("bf16 " << bits);
    }
  }
  CHECK(all_finite(bytes_of(all), Dtype::bf16));
  for (const std::uint32_t bits : {0x7F800000u, 0xFF800000u, 0x7FC00000u, 0x7F800001u}) {
    for (std::size_t place = 0; place < 3; ++place) {
      std::vector<std::uint32_t> some{0x7F7FFFFF, 0x80000000, 0x00000001};
      CHECK(all_finite(bytes_of(some), Dtype::f32));
      some[place] = bits;
      CHECK(!all_finite(bytes_of(some), Dtype::f32));
    }
  }
}

TEST_CASE("a parameter that every token meets is refused at loading where it is not finite",
          "[cpu][weights]") {
  const auto [name, bytes] = GENERATE(table<std::string, std::string>({
      {"layers.3.ffn.gate.bias", std::string("\0\0\xc0\x7f", 4)},   // f32 NaN
      {"layers.3.attn.attn_sink", std::string("\0\0\x80\xff", 4)},  // f32 -inf
      {"layers.3.hc_attn_scale", std::string("\0\0\x80\x7f", 4)},   // f32 inf
      {"layers.3.ffn.gate.weight", std::string("\xc0\x7f", 2)},     // bf16 NaN
      {"layers.3.ffn_norm.weight", std::string("\xc0\xff", 2)},
  }));
  CAPTURE(name);
  const TinyCheckpoint tiny;
  tiny.edit(5, [&](SafetensorsFile& file) {
    const auto at = file.header[name]["data_offsets"][0].template get<std::size_t>();
    file.data.replace(at, bytes.size(), bytes);
  });
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(tiny.dir.path()));
  Problems loading;
  check_all_values(checkpoint, ValueChecks::loading, 2, loading);
  REQUIRE(loading.size() == 1);
  CHECK(contains(loading.list()[0].text, "\"" + name + "\" of " + tiny.shard(5).string() +
                                             " has a value that is not finite in row 0, column 0; "
                                             "fetch the shard again"));
}

TEST_CASE("an expert that does not exist is found in the table of hash layers", "[cpu][weights]") {
  const TinyCheckpoint tiny;
  const bool negative = GENERATE(true, false);
  tiny.edit(2, [&](SafetensorsFile& file) {
    const auto at =
        file.header["layers.0.ffn.gate.tid2eid"]["data_offsets"][0].template get<std::size_t>();
    if (negative) {
      file.data[at + 8 * 5 + 7] = '\x80';
    } else {
      file.data[at + 8 * 5] = 8;
    }
  });
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(tiny.dir.path()));
  Problems problems;
  check_all_values(checkpoint, ValueChecks::loading, 2, problems);
  REQUIRE(problems.size() == 1);
  CHECK(contains(problems.list()[0].text, "row 2, column 1"));
  CHECK(contains(problems.list()[0].text, "experts are 0 to 7"));
}

TEST_CASE("a config and shards that are both bad are told together", "[cpu][weights]") {
  const TinyCheckpoint tiny;
  tiny.edit_json("config.json", [](auto& config) { config["hidden_size"] = -1; });
  fs::resize_file(tiny.shard(4), fs::file_size(tiny.shard(4)) - 1);
  const std::string message = tiny.message();
  CHECK(contains(message, "hidden_size is -1"));
  CHECK(contains(message, tiny.shard(4).string()));
  CHECK(contains(message, "cut short"));
}

TEST_CASE("a bad shard does not make its tensors missing", "[cpu][weights]") {
  const TinyCheckpoint tiny(7, GENERATE(true, false));
  test::write_file(tiny.shard(4), "");
  const std::string message = tiny.message();
  CHECK(lines(message) == 1);
  CHECK(contains(message, tiny.shard(4).string()));
}

TEST_CASE("a directory that is no checkpoint", "[cpu][weights]") {
  const test::TempDir dir;
  const auto refusal = [](const fs::path& path) {
    const auto opened = open_checkpoint(path);
    REQUIRE(!opened);
    CHECK(exit_status(opened.error().code) == 2);
    return opened.error().message;
  };
  CHECK(contains(refusal(dir.path()), "holds no *.safetensors"));
  CHECK(contains(refusal(dir.path()), "config.json"));
  CHECK(contains(refusal(dir / "absent"), "does not exist"));
  test::write_file(dir / "file", "x");
  CHECK(contains(refusal(dir / "file"), "is a file; give the folder"));
}

TEST_CASE("another model's config stops before its shards are judged", "[cpu][weights]") {
  const TinyCheckpoint tiny;
  tiny.edit_json("config.json", [](auto& config) { config["model_type"] = "deepseek_v41"; });
  test::write_file(tiny.shard(1), "");
  const Error error = tiny.refusal();
  CHECK(error.code == ErrorCode::unsupported);
  CHECK(lines(error.message) == 1);
  CHECK(contains(error.message, "DeepSeek-V4.1"));
}

TEST_CASE("refusing a checkpoint takes no memory to speak of", "[cpu][weights]") {
  if (test::kSanitized && test::skip("a sanitizer's memory would be measured")) return;
  const TinyCheckpoint tiny;
  SECTION("a config of the largest size that is allowed, and nothing of it there") {
    tiny.drop_index();
    tiny.edit_json("config.json", [](auto& config) {
      config["n_routed_experts"] = 10922;  // × 6 blocks: just under the limit
      config["vocab_size"] = 16777216;
      config["hidden_size"] = 1048576;
    });
  }
  SECTION("shards missing") {
    for (int number = 2; number < 7; ++number)
      fs::remove(tiny.shard(number));
  }
  SECTION("two shards whose headers are padded to 99 MB, and no tensor in them") {
    for (int number = 2; number < 4; ++number) {
      std::string header = "{}";
      header.resize(99'000'000, ' ');
      test::write_file(tiny.shard(number), test::safetensors_bytes(header, ""));
    }
  }
  SECTION("a shard of zeros, a gigabyte long") {
    test::write_file(tiny.shard(3), "");
    fs::resize_file(tiny.shard(3), 1'000'000'000);
  }
  const std::size_t grown = test::peak_memory_of([&] {
    if (open_checkpoint(tiny.dir.path())) throw std::runtime_error("accepted");
  });
  CHECK(grown < 100'000'000);
}
