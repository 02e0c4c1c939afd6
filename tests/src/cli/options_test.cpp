#include "src/cli/options.hpp"

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

Result<Command> parse(std::vector<const char*> arguments, const Environment& environment = {}) {
  arguments.insert(arguments.begin(), "ingot");
  return parse_command_line(arguments, environment);
}

template <class Options>
Options parsed(std::vector<const char*> arguments) {
  auto command = value_or_throw(parse(std::move(arguments)));
  REQUIRE(std::holds_alternative<Options>(command));
  return std::get<Options>(command);
}

void refused(std::vector<const char*> arguments, std::string_view word) {
  const auto command = parse(std::move(arguments));
  REQUIRE(!command);
  CAPTURE(command.error().message);
  CHECK(command.error().code == ErrorCode::invalid_argument);
  CHECK(command.error().message.find(word) != std::string::npos);
  CHECK(command.error().message.find('\n') == std::string::npos);
}

}  // namespace

TEST_CASE("flags reach the command that they are given to", "[cpu][cli]") {
  const auto chat = parsed<ChatOptions>({"chat", "--model", "m", "--temperature", "0.5", "--stop",
                                         "a", "--stop", "b", "--thinking", "high", "-p", "hi"});
  CHECK(chat.settings.model == "m");
  CHECK(chat.settings.temperature == 0.5);
  CHECK(chat.settings.stop == std::vector<std::string>{"a", "b"});
  CHECK(chat.settings.thinking == "high");
  CHECK(chat.prompt == "hi");
  const auto generate = parsed<GenerateOptions>(
      {"generate", "--input", "in", "--output", "out", "--force", "--keep-thinking"});
  CHECK(generate.input == "in");
  CHECK(generate.force);
  CHECK(!generate.input_order);
  CHECK(generate.shard.count == 1);
  const auto night = parsed<GenerateOptions>({"generate", "--input", "in", "--output", "out",
                                              "--order", "input", "--shard", "2/8", "--resume",
                                              "--disk-full", "stop", "--stats", "s"});
  CHECK(night.input_order);
  CHECK(night.shard.index == 2);
  CHECK(night.shard.count == 8);
  CHECK(night.stop_when_full);
  const auto merge = parsed<GenerateOptions>(
      {"generate", "--input", "in", "--output", "out", "--merge", "a", "b"});
  CHECK(merge.merge == std::vector<std::filesystem::path>{"a", "b"});
  // Answers alone are known by their place.
  CHECK(parsed<GenerateOptions>({"generate", "--input", "in", "--output", "out", "--text"})
            .input_order);
  CHECK(!parsed<GenerateOptions>(
             {"generate", "--input", "in", "--output", "out", "--text", "--order", "finish"})
             .input_order);
  CHECK(generate.settings.keep_thinking);
  const auto score = parsed<ScoreOptions>({"score", "--tokens", "1,2", "--top", "3", "--json"});
  CHECK(score.tokens == "1,2");
  CHECK(score.top == 3);
  CHECK(score.json);
}

TEST_CASE("bench takes batches, contexts and a model or the shape of one", "[cpu][cli]") {
  const auto decode =
      parsed<BenchOptions>({"bench", "decode", "--synthetic", "--config", "c.json", "--layers",
                            "36", "--batch", "16,1", "--context", "2K,128K", "--steps", "5",
                            "--pin", "rms_norm.VECTOR=8", "--frozen", "--trace"});
  CHECK(decode.what == BenchOptions::What::decode);
  CHECK(decode.checkpoint.empty());
  CHECK(decode.config_json == "c.json");
  CHECK(decode.layers == 36);
  CHECK(decode.batches == std::vector<int>{1, 16});
  CHECK(decode.contexts == std::vector<std::int64_t>{2048, 131072});
  CHECK(decode.steps == 5);
  CHECK(decode.pins == std::vector<std::string>{"rms_norm.VECTOR=8"});
  CHECK(decode.cache.frozen);
  CHECK(decode.cache.traced);
  const auto prefill = parsed<BenchOptions>(
      {"bench", "prefill", "--model", "m", "--tokens", "8K", "--chunk", "256", "--json", "out"});
  CHECK(prefill.what == BenchOptions::What::prefill);
  CHECK(prefill.checkpoint == "m");
  CHECK(prefill.tokens == 8192);
  CHECK(prefill.chunk == 256);
  CHECK(prefill.json == "out");
  const auto serve = parsed<BenchOptions>(
      {"bench", "serve", "--model", "m", "--concurrency", "64,1", "--input", "20..4000", "--output",
       "9", "--requests", "12", "--device", "cpu", "--pin", "rms_norm.VECTOR=8"});
  CHECK(serve.what == BenchOptions::What::serve);
  CHECK(serve.concurrency == std::vector<int>{1, 64});
  CHECK(serve.input == TokenRange{.least = 20, .most = 4000});
  CHECK(serve.output == TokenRange{.least = 9, .most = 9});
  CHECK(serve.requests == 12);
  CHECK(serve.device == "cpu");
  CHECK(serve.pins == std::vector<std::string>{"rms_norm.VECTOR=8"});
  refused({"bench", "serve", "--model", "m", "--input", "0"}, "--input");
  refused({"bench", "serve", "--model", "m", "--input", "9..3"}, "--input");
  refused({"bench", "serve", "--model", "m", "--output", "3.."}, "--output");
  refused({"bench", "serve", "--model", "m", "--concurrency", "0"}, "--concurrency");
  refused({"bench", "serve", "--model", "m", "--device", "tpu"}, "--device");
  const auto kernels = parsed<BenchOptions>(
      {"bench", "kernels", "--model", "m", "--family", "sparse_mla,moe", "--heads", "64,8",
       "--batch", "1,128", "--keys", "8K,128K", "--prompt-rows", "256", "--all-candidates"});
  CHECK(kernels.what == BenchOptions::What::kernels);
  CHECK(kernels.families == std::vector<std::string>{"sparse_mla", "moe"});
  CHECK(kernels.heads == std::vector{8, 64});
  CHECK(kernels.batches == std::vector{1, 128});
  CHECK(kernels.contexts == std::vector<std::int64_t>{8192, 131072});
  CHECK(kernels.prompt_rows == std::vector{256});
  CHECK(kernels.all_candidates);
  refused({"bench", "kernels", "--model", "m", "--heads", "0"}, "--heads");
  refused({"bench", "kernels", "--model", "m", "--keys", "x"}, "--keys");
  refused({"bench"}, "subcommand");
  refused({"bench", "decode"}, "--model");
  refused({"bench", "decode", "--synthetic"}, "--config");
  refused({"bench", "decode", "--model", "m", "--synthetic", "--config", "c"}, "--model");
  refused({"bench", "decode", "--model", "m", "--layers", "3"}, "--synthetic");
  refused({"bench", "decode", "--model", "m", "--batch", "0"}, "--batch");
  refused({"bench", "decode", "--model", "m", "--context", "32k"}, "--context");
  refused({"bench", "prefill", "--model", "m", "--batch", "1"}, "--batch");
}

TEST_CASE("inspect takes a GPU's memory, and what shall run in it", "[cpu][cli]") {
  const auto inspect = parsed<InspectOptions>(
      {"inspect", "DIR", "--gpu-memory", "139.8", "--max-batch", "64", "--context", "128K"});
  REQUIRE(inspect.gpu);
  CHECK(inspect.gpu->memory_bytes == 139'800'000'000U);
  CHECK(inspect.gpu->max_batch == 64);
  CHECK(inspect.gpu->context == 131072);
  CHECK_FALSE(parsed<InspectOptions>({"inspect", "DIR"}).gpu);
  refused({"inspect", "DIR", "--gpu-memory", "much"}, "--gpu-memory");
  refused({"inspect", "DIR", "--gpu-memory", "-1"}, "--gpu-memory");
  refused({"inspect", "DIR", "--context", "4K"}, "--gpu-memory");
}

TEST_CASE("an unknown option or command is refused by name", "[cpu][cli]") {
  refused({"chat", "--nonsense"}, "--nonsense");
  refused({"nonsense"}, "nonsense");
  refused({"chat", "surplus"}, "surplus");
  refused({}, "a command is needed");
}

TEST_CASE("a missing or doubled value is refused by name", "[cpu][cli]") {
  refused({"chat", "--top-p"}, "--top-p");
  refused({"chat", "--top-p", "0.5", "--top-p", "0.6"}, "--top-p");
  refused({"generate", "--input", "x"}, "--output");
  refused({"score"}, "--tokens");
  refused({"score", "--tokens", "1", "--text", "x"}, "--text");
  refused({"generate", "--input", "a", "--output", "b", "--format", "xml"}, "--format");
}

TEST_CASE("an option with = and nothing after it has an empty value and takes no other word",
          "[cpu][cli]") {
  const auto tokens = parsed<TokensOptions>({"tokens", "--model", "m", "--text=", "--json"});
  CHECK(tokens.text == "");
  CHECK(tokens.json);
  CHECK(parsed<ScoreOptions>({"score", "--text=", "--json"}).text == "");
  refused({"chat", "--prompt=", "--stats"}, "the question is empty");
  CHECK(parsed<ChatOptions>({"chat", "--system=", "--stats"}).settings.system.empty());
  refused({"generate", "--input", "i", "--output=", "--quiet"}, "--output");
  refused({"chat", "--max-tokens=", "3"}, "3");
  refused({"chat", "--max-tokens="}, "--max-tokens must be a whole number");
  refused({"chat", "--temperature="}, "--temperature must be a number");
  refused({"cache", "gc", "--max-size="}, "--max-size");
  refused({"generate", "--input", "i", "--output", "o", "--shard", "3/2"}, "I from 1 to N");
  refused({"generate", "--input", "i", "--output", "o", "--retry-failed"}, "--resume");
  refused({"generate", "--input", "i", "--output", "o", "--resume", "--force"}, "give one");
  // A word that is the value of another option stays as it is.
  CHECK(parsed<ChatOptions>({"chat", "-p", "--system="}).prompt == "--system=");
  CHECK(parsed<ChatOptions>({"chat", "--prompt", "--system="}).prompt == "--system=");
  CHECK(parsed<ChatOptions>({"chat", "--prompt=a="}).prompt == "a=");
}

TEST_CASE("an empty name of a file or folder is refused by its option", "[cpu][cli]") {
  refused({"generate", "--input", "i", "--output", ""}, "--output");
  refused({"generate", "--input", "", "--output", "o"}, "--input");
  refused({"chat", "--conversation", ""}, "--conversation");
  refused({"chat", "--config", ""}, "--config");
  refused({"chat", "--model", ""}, "--model");
  refused({"chat", "--cache-dir", ""}, "--cache-dir");
  refused({"score", "--input", ""}, "--input");
  refused({"score", "--vectors", ""}, "--vectors");
  refused({"tokens", "--model", "", "--text", "x"}, "--model");
  refused({"tokens", "--model", "m", "--messages", ""}, "--messages");
  refused({"inspect", ""}, "must not be empty");
  refused({"prewarm", "--model", ""}, "--model");
}

TEST_CASE("an unknown command is refused whatever is asked of it", "[cpu][cli]") {
  refused({"nosuch", "--help"}, "nosuch");
  refused({"nosuch", "--version"}, "nosuch");
  refused({"cache", "nosuch", "--help"}, "nosuch");
  CHECK(std::holds_alternative<PrintAndExit>(value_or_throw(parse({"tokens", "--help"}))));
  CHECK(std::holds_alternative<PrintAndExit>(value_or_throw(parse({"cache", "--help"}))));
}

TEST_CASE("a number out of range is refused with the range", "[cpu][cli]") {
  refused({"chat", "--max-batch", "1000000000000000000"}, "from 1 to 4096");
  refused({"chat", "--max-batch", "10^18"}, "from 1 to 4096");
  refused({"chat", "--max-batch", "-1"}, "from 1 to 4096, not -1");
  refused({"chat", "--temperature", "nan"}, "from 0 to 2");
  refused({"score", "--tokens", "1", "--top", "-1"}, "--top");
  refused({"synth", "--config", "c", "OUT", "--seed", "-1"}, "--seed");
}

TEST_CASE("flags go before the settings file, and that before the environment", "[cpu][cli]") {
  const TempDir folder;
  const std::string file = folder / "my.toml";
  write_file(file, "[cache]\ndir = \"from-file\"\n[sampling]\ntop_p = 0.5\ntemperature = 0.25\n");
  Environment environment;
  environment.cache_home = "/home/me/.cache";
  environment.cache_home_from = "HOME";
  const auto command = value_or_throw(
      parse({"doctor", "--settings", "--config", file.c_str(), "--top-p", "0.9"}, environment));
  const auto& doctor = std::get<DoctorOptions>(command);
  CHECK(doctor.settings.values().top_p == 0.9);
  CHECK(doctor.settings.values().temperature == 0.25);
  CHECK(doctor.settings.values().cache_dir == "from-file");
  const auto layers = doctor.settings.layers("cache.dir");
  REQUIRE(layers.size() == 2);
  CHECK(layers[0].origin == file + ":2");
  CHECK(layers[1].origin == "HOME");
  CHECK(layers[1].value == "\"/home/me/.cache/ingot\"");
}

TEST_CASE("a settings file that does not exist is refused", "[cpu][cli]") {
  const auto command = parse({"chat", "--config", "/nonexistent/x.toml"});
  REQUIRE(!command);
  CHECK(command.error().code == ErrorCode::not_found);
}

TEST_CASE("every command has help with an example", "[cpu][cli]") {
  for (const char* name : {"chat", "generate", "score", "tokens", "inspect", "synth", "doctor"}) {
    CAPTURE(name);
    const auto help = parsed<PrintAndExit>({name, "--help"});
    CHECK(help.text.find("Example") != std::string::npos);
    CHECK(help.text.find(std::string("  ingot ") + name) != std::string::npos);
  }
  const auto all = parsed<PrintAndExit>({"--help"});
  for (const char* name : {"chat", "generate", "score", "doctor"}) {
    CHECK(all.text.find(name) != std::string::npos);
  }
  CHECK(parsed<PrintAndExit>({"--version"}).text.starts_with("ingot "));
}
