// The built program, from its command line: usage, settings, errors, exit status.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/run_program.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/tiny_model.hpp"

using namespace ingot::test;
using nlohmann::json;

namespace {

constexpr std::size_t kRefusedPeakBytes = 100'000'000;

/// Refused with status 2 and one line on standard error, nothing on standard output, and before
/// much memory was used.
ProgramResult refused(const std::vector<std::string>& arguments, std::string_view word,
                      const ProgramOptions& options = {}) {
  const ProgramResult result = run_ingot(arguments, options);
  CAPTURE(arguments, result.err, result.out);
  CHECK(result.status == 2);
  CHECK(result.out.empty());
  CHECK(result.err.find("ingot: error: ") == 0);
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  CHECK(result.err.find(word) != std::string::npos);
  if (!kSanitized) CHECK(result.peak_bytes < kRefusedPeakBytes);
  return result;
}

}  // namespace

TEST_CASE("ingot refuses an unknown option", "[cpu][cli]") {
  refused({"chat", "--nonsense"}, "--nonsense");
  refused({"--nonsense"}, "--nonsense");
  refused({"nonsense"}, "nonsense");
  refused({}, "--help");
}

TEST_CASE("arguments that were not expected are named as they were given", "[cpu][cli]") {
  refused({"score", "--tokens", "5", "--top-k", "3"},
          "the following arguments were not expected: --top-k 3 (see `ingot score --help`)");
  refused({"tokens", "--text", "a", "b", "c", "b"}, "were not expected: b c b (see");
  refused({"tokens", "--text", "a", "b"}, "the following argument was not expected: b (see");
  // Also where something required is missing, for which they were perhaps meant.
  refused({"tokens", "--txt"}, "the following argument was not expected: --txt (see");
  refused({"generate", "--inptu"}, "the following argument was not expected: --inptu (see");
  refused({"cache", "lst"}, "the following argument was not expected: lst (see");
}

TEST_CASE("a file that a command is told to write is not replaced without --force", "[cpu][cli]") {
  const TempDir folder;
  const std::string file = folder / "kept";
  write_file(file, "kept");
  const std::string config = golden_dir() / "checkpoint/tiny.json";
  for (const char* flag : {"--json", "--svg"}) {
    for (const char* what : {"decode", "prefill", "serve", "kernels"}) {
      if (std::string_view(flag) == "--svg" && std::string_view(what) != "decode") continue;
      refused({"bench", what, "--synthetic", "--config", config, flag, file},
              file + ": it exists; give --force to replace it, or name another file");
    }
  }
  refused({"cache", "export", file, "--cache-dir", folder / "cache"},
          file + ": it exists; give --force to replace it");
  // With it what comes next is told.
  const auto forced =
      run_ingot({"cache", "export", file, "--force", "--cache-dir", folder / "cache"});
  CHECK(forced.err.find("the cache holds nothing") != std::string::npos);
  CHECK(read_file(file) == "kept");
}

TEST_CASE("ingot refuses an unknown TOML key, file and line named", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "s.toml", "[sampling]\ntop_p = 1\ntop_q = 1\n");
  refused({"chat", "--config", folder / "s.toml"}, (folder / "s.toml").string() + ":3");
}

TEST_CASE("ingot refuses a wrong type in a settings file, file and line named", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "s.toml", "[engine]\n\ncontext = \"long\"\n");
  refused({"generate", "--input", "a", "--output", "b", "--config", folder / "s.toml"},
          (folder / "s.toml").string() + ":3: engine.context must be a whole number");
}

TEST_CASE("ingot doctor --settings shows which of two sources won", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "s.toml", "[sampling]\ntop_p = 0.5\n");
  const auto text =
      run_ingot({"doctor", "--settings", "--config", folder / "s.toml", "--top-p", "0.9"});
  CHECK(text.status == 0);
  CHECK(text.err.empty());
  CHECK(
      text.out.find("sampling.top_p               = 0.9              --top-p, wins over 0.5 from " +
                    (folder / "s.toml").string() + ":2") != std::string::npos);
  const auto as_json = run_ingot(
      {"doctor", "--settings", "--json", "--config", folder / "s.toml", "--top-p", "0.9"});
  const json parsed = json::parse(as_json.out);
  for (const json& setting : parsed["settings"]) {
    if (setting["key"] != "sampling.top_p") continue;
    CHECK(setting["from"] == "--top-p");
    CHECK(setting["over"][0]["value"] == "0.5");
  }
}

TEST_CASE("ingot refuses 10^18 as a number", "[cpu][cli]") {
  refused({"chat", "--context", "1000000000000000000"}, "from 16 to");
  refused({"chat", "--max-batch", "10^18"}, "from 1 to 4096");
  refused({"chat", "--tp", "-1"}, "from 1 to 64");
}

TEST_CASE("ingot refuses a model path that is a file, missing or no checkpoint", "[cpu][cli]") {
  const TempDir folder;
  const std::string file = tiny_model() / "config.json";
  refused({"chat", "--model", file}, "this is a file");
  refused({"score", "--model", file, "--tokens", "1"}, "this is a file");
  refused(
      {"generate", "--model", file, "--input", "/dev/null", "--format", "text", "--output", "-"},
      "this is a file");
  refused({"chat", "--model", "/nonexistent"}, "no such folder");
  const auto empty = run_ingot({"chat", "--model", folder.path()});
  CHECK(empty.status == 2);
  CHECK(empty.err.find("config.json") != std::string::npos);
}

TEST_CASE("without --model commands take the built-in model and say so", "[cpu][cli]") {
  const auto tokens = run_ingot({"tokens", "--text", "hello"});
  CHECK(tokens.status == 0);
  CHECK(tokens.out.find("\"lo\"\n3 tokens") != std::string::npos);
  CHECK(tokens.err.find("ingot: no --model is given: taking the built-in one, /") == 0);
  CHECK(tokens.err.find("ingot-tiny\n") != std::string::npos);
  const auto inspected = run_ingot({"inspect", "--hash", "--json"});
  CHECK(inspected.status == 0);
  CHECK(json::parse(inspected.out)["problems"].empty());
  const auto scored = run_ingot({"score", "--text", "x", "--device", "cpu"});
  CHECK(scored.status == 0);
  CHECK(scored.err.find("ingot: no --model") == 0);
  const auto doctor = run_ingot({"doctor"});
  CHECK(doctor.out.find("built-in model ok ") != std::string::npos);
  CHECK(run_ingot({"doctor", "--model", tiny_model()}).out.find("built-in") == std::string::npos);
}

TEST_CASE("a program without its built-in model names the places that it looked in", "[cpu][cli]") {
  const TempDir folder;
  std::filesystem::create_directory(folder / "bin");
  ProgramOptions options;
  options.program = folder / "bin/ingot";
  std::filesystem::copy_file(ingot_program(), options.program);
  const std::string place = folder / "share/ingot/models/ingot-tiny";
  refused({"chat"}, place, options);
  CHECK(run_ingot({"doctor"}, options).out.find(place) != std::string::npos);
}

TEST_CASE("ingot refuses a device that it cannot have", "[cpu][cli]") {
  refused({"chat", "--model", tiny_model(), "--device", "cuda"}, "--device cpu");
  refused({"chat", "--model", tiny_model(), "--device", "tpu"}, "auto, cuda, cpu");
}

TEST_CASE("--device auto says in one line what it took and why", "[cpu][cli]") {
  const auto ran = run_ingot({"score", "--model", tiny_model(), "--tokens", "5"});
  CHECK(ran.status == 0);
  CHECK(ran.err.find("ingot: device cpu: ") == 0);
  CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
  CHECK(run_ingot({"score", "--model", tiny_model(), "--tokens", "5", "--device", "cpu"}).err ==
        "");
}

TEST_CASE("a TP size that does not divide the model is refused with those that do", "[cpu][cli]") {
  const auto ran = run_ingot({"score", "--model", tiny_model(), "--tokens", "5", "--tp", "3"});
  CHECK(ran.status == 2);
  CHECK(ran.err.find("ingot: error: ") == 0);
  CHECK(ran.err.find("valid tensor-parallel sizes are 1") != std::string::npos);
}

TEST_CASE("help and version go to standard output with status 0", "[cpu][cli]") {
  const auto version = run_ingot({"--version"});
  CHECK(version.status == 0);
  CHECK(version.out.starts_with("ingot "));
  CHECK(version.err.empty());
  const auto help = run_ingot({"generate", "--help"});
  CHECK(help.status == 0);
  CHECK(help.out.find("ingot generate --model") != std::string::npos);
}

TEST_CASE("a full disk behind standard output is an error", "[cpu][cli]") {
  // A shell is the one who can redirect: the program inherits the device.
  const TempDir folder;
  const auto ran = run_ingot({"generate", "--model", tiny_model(), "--input", "/dev/null",
                              "--format", "text", "--output", "/dev/full"});
  CHECK(ran.status == 0);  // nothing to write
  write_file(folder / "in.txt", "hi\n");
  const auto full = run_ingot({"generate", "--model", tiny_model(), "--input", folder / "in.txt",
                               "--max-tokens", "2", "--output", "/dev/full"});
  CHECK(full.status == 1);
  CHECK(full.err.find("No space left") != std::string::npos);
}

TEST_CASE("doctor finds a machine without a GPU usable and a broken model not", "[cpu][cli]") {
  const auto good = run_ingot({"doctor", "--model", tiny_model(), "--json"});
  CHECK(good.status == 0);
  const json report = json::parse(good.out);
  CHECK(report["usable"] == true);
  std::vector<std::string> names;
  for (const json& finding : report["findings"])
    names.push_back(finding["name"]);
  for (const char* name : {"cpu", "memory", "cuda driver", "nvrtc", "nccl", "cache folder",
                           "device", "model", "tokenizer"}) {
    CHECK(std::find(names.begin(), names.end(), name) != names.end());
  }
  const auto bad = run_ingot({"doctor", "--model", "/nonexistent"});
  CHECK(bad.status == 1);
  CHECK(bad.out.find("ingot cannot run here as asked") != std::string::npos);
  CHECK(run_ingot({"doctor", "--device", "cuda"}).status == 1);
}

TEST_CASE("score prints one position for each token and needs no tokenizer", "[cpu][cli]") {
  const TempDir folder;
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::create_symlink(tiny_model() / name, folder / name);
  }
  const auto ran =
      run_ingot({"score", "--model", folder.path(), "--tokens", "5,6,7", "--top", "5", "--json"});
  REQUIRE(ran.status == 0);
  const json scores = json::parse(ran.out);
  REQUIRE(scores["positions"].size() == 3);
  for (const json& position : scores["positions"]) {
    REQUIRE(position["top"].size() == 5);
    CHECK(position["top"][0].size() == 3);
    CHECK(position["top"][0][1] >= position["top"][1][1]);
    CHECK(position["top"][0][2] <= 0);
  }
  CHECK(scores["positions"][0]["next"] < 0);
  CHECK(scores["positions"][2]["next"].is_null());
  // The values that an independent implementation gives for this model (the likeliest token of each
  // position, whose lead over the second is clear).
  CHECK(scores["positions"][0]["top"][0][0] == 249);
  CHECK(scores["positions"][2]["top"][0][0] == 382);
}

TEST_CASE("score lists the positions of a text where that is asked for", "[cpu][cli]") {
  const auto lines = [](std::vector<std::string> more) {
    std::vector<std::string> arguments{"score", "--model", tiny_model(), "--device",
                                       "cpu",   "--text",  "abc"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto ran = run_ingot(arguments);
    CHECK(ran.status == 0);
    return std::count(ran.out.begin(), ran.out.end(), '\n');
  };
  CHECK(lines({}) == 1);
  CHECK(lines({"--top", "2"}) == 1 + 4 + 1);  // a heading, BOS and three letters, the sum
}

TEST_CASE("score refuses tokens that it cannot take", "[cpu][cli]") {
  const auto refuse = [&](const std::string& tokens, std::string_view word) {
    const auto ran =
        run_ingot({"score", "--model", tiny_model(), "--device", "cpu", "--tokens", tokens});
    CAPTURE(ran.err);
    CHECK(ran.status == 2);
    CHECK(ran.err.find(word) != std::string::npos);
  };
  refuse("", "entry 1");
  refuse("1,,2", "entry 2");
  refuse("1,x", "entry 2");
  refuse("1;2", "comma");
  refuse("-1", "entry 1");
  refuse("512", "token 512 at position 0");
  refuse("99999999999999", "entry 1");
}

TEST_CASE("score of one token has no perplexity", "[cpu][cli]") {
  const auto ran = run_ingot({"score", "--model", tiny_model(), "--tokens", "5", "--json"});
  CHECK(ran.status == 0);
  const json report = json::parse(ran.out);
  CHECK(report["scored"] == 0);
  CHECK(report["mean_nll"].is_null());
  CHECK(report["perplexity"].is_null());
}

TEST_CASE("bad input is refused before the weights are read", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "roles.json", R"([{"role": "assistant", "content": "Hi"}])");
  write_file(folder / "no.json", "[");
  refused({"chat", "--model", tiny_model(), "--conversation", folder / "roles.json"}, "roles.json");
  refused({"chat", "--model", tiny_model(), "--conversation", folder / "no.json"}, "no.json");
  refused({"chat", "--model", tiny_model(), "--stop", ""}, "stop");
  refused({"chat", "--model", tiny_model(), "--thinking", "low"}, "low");
  refused({"score", "--model", tiny_model(), "--vectors", folder.path()}, "manifest.json");
  refused({"score", "--model", tiny_model(), "--tokens", "999999999"}, "vocabulary");
}

TEST_CASE("score and tokens read standard input", "[cpu][cli]") {
  ProgramOptions options;
  options.input = "hello";
  CHECK(run_ingot({"tokens", "--model", tiny_model(), "--input", "-"}, options).out ==
        run_ingot({"tokens", "--model", tiny_model(), "--text", "hello"}).out);
  CHECK(run_ingot({"score", "--model", tiny_model(), "--input", "-", "--json"}, options).out ==
        run_ingot({"score", "--model", tiny_model(), "--text", "hello", "--json"}).out);
  options.input = R"([{"role": "user", "content": "hi"}])";
  CHECK(run_ingot({"tokens", "--model", tiny_model(), "--messages", "-"}, options).status == 0);
}

TEST_CASE("score of a text gives its perplexity", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "t.txt", "the first text\n");
  const auto ran =
      run_ingot({"score", "--model", tiny_model(), "--input", folder / "t.txt", "--json"});
  REQUIRE(ran.status == 0);
  const json scores = json::parse(ran.out);
  CHECK(scores["tokens"] == 14);  // BOS, "the" and twelve bytes
  CHECK(scores["scored"] == 13);
  CHECK(scores["perplexity"].get<double>() == Approx(std::exp(scores["mean_nll"].get<double>())));
  const auto no_bos = run_ingot(
      {"score", "--model", tiny_model(), "--text", "the first text\n", "--no-bos", "--json"});
  CHECK(json::parse(no_bos.out)["tokens"] == 13);
  CHECK(run_ingot({"score", "--model", tiny_model(), "--input", "/nonexistent"}).status == 2);
}
