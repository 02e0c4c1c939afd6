// Input that the built program refuses, or fails on half-way: how much memory that takes, and that
// nothing comes out which looks whole.
#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>

#include "tests/support/run_program.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/tiny_model.hpp"

using namespace ingot::test;

namespace {

constexpr std::size_t kRefusedPeakBytes = 100'000'000;
constexpr std::uint16_t kNan = 0x7FC0;
constexpr std::size_t kMiB = std::size_t{1} << 20;

void refused(const ProgramResult& ran, std::string_view word) {
  CAPTURE(ran.err.substr(0, 300), ran.peak_bytes);
  CHECK(ran.status == 2);
  CHECK(ran.out.empty());
  CHECK(ran.err.find("ingot: error: ") == 0);
  CHECK(ran.err.find(word) != std::string::npos);
  CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
  CHECK(ran.err.size() < 1000);
  if (!kSanitized) CHECK(ran.peak_bytes < kRefusedPeakBytes);
}

std::string repeat(std::string_view part, std::size_t bytes) {
  std::string text;
  text.reserve(bytes + part.size());
  while (text.size() + part.size() <= bytes)
    text += part;
  return text;
}

/// A copy of the tiny model that a test may damage.
struct ModelCopy {
  ModelCopy() { write_changed_tiny_model(path, "embed.weight", {}, 0); }
  void replace(const char* file, std::string_view what, std::string_view with) const {
    std::string text = read_file(path / file);
    const auto at = text.find(what);
    REQUIRE(at != std::string::npos);
    write_file(path / file, text.replace(at, what.size(), with));
  }

  TempDir folder;
  std::filesystem::path path = folder / "model";
  std::filesystem::path shard = path / "model.safetensors";
};

struct Damage {
  const char* name;
  std::function<void(const ModelCopy&)> apply;
  const char* file;  ///< that the message names
  const char* word;
};

std::string length_bytes(std::uint64_t length) {
  return {reinterpret_cast<const char*>(&length), sizeof(length)};
}

}  // namespace

TEST_CASE("a damaged checkpoint is refused by every command, file and remedy named, within 100 MB",
          "[cpu][cli]") {
  const auto damage = GENERATE(values<Damage>({
      {"cut by 1 byte",
       [](const ModelCopy& m) {
         std::filesystem::resize_file(m.shard, std::filesystem::file_size(m.shard) - 1);
       },
       "model.safetensors", "fetch the file again"},
      {"cut by half",
       [](const ModelCopy& m) {
         std::filesystem::resize_file(m.shard, std::filesystem::file_size(m.shard) / 2);
       },
       "model.safetensors", "fetch the file again"},
      {"empty", [](const ModelCopy& m) { write_file(m.shard, ""); }, "model.safetensors",
       "fetch the file again"},
      {"one byte too long",
       [](const ModelCopy& m) { write_file(m.shard, read_file(m.shard) + "x"); },
       "model.safetensors", "fetch the file again"},
      {"header length 2^63",
       [](const ModelCopy& m) {
         write_file(m.shard, length_bytes(std::uint64_t{1} << 63) + read_file(m.shard).substr(8));
       },
       "model.safetensors", "9223372036854775808"},
      {"header of 101 MB",
       [](const ModelCopy& m) {
         write_file(m.shard, length_bytes(101'000'000));
         std::filesystem::resize_file(m.shard, 102'000'000);
       },
       "model.safetensors", "101000000"},
      {"header of 99 MB of blanks",
       [](const ModelCopy& m) {
         write_file(m.shard, length_bytes(99'000'000) + "{" + repeat(" ", 98'999'998) + "}");
       },
       "model.safetensors", "fetch the file again"},
      {"header of 98 MB of JSON that breaks off",
       [](const ModelCopy& m) {
         const std::string text = "\"k\": \"" + std::string(60'000, 'm') + "\", ";
         const std::string header = "{\"__metadata__\": {" + repeat(text, 98'000'000) + "!";
         write_file(m.shard, length_bytes(header.size()) + header);
       },
       "model.safetensors", "the header is not JSON"},
      {"shard missing", [](const ModelCopy& m) { std::filesystem::remove(m.shard); }, "model",
       "safetensors"},
      {"no config", [](const ModelCopy& m) { std::filesystem::remove(m.path / "config.json"); },
       "config.json", "config.json"},
      {"a negative field",
       [](const ModelCopy& m) {
         m.replace("config.json", "\"hidden_size\": ", "\"hidden_size\": -");
       },
       "config.json", "correct it"},
      {"10^18 in a field",
       [](const ModelCopy& m) {
         m.replace("config.json", "\"vocab_size\": ", "\"vocab_size\": 1000000000000000");
       },
       "config.json", "correct it"},
      {"a config nested without end",
       [](const ModelCopy& m) { write_file(m.path / "config.json", repeat("[", 3'000'000)); },
       "config.json", "take the config.json that belongs to the weights"},
      {"V4.1",
       [](const ModelCopy& m) { m.replace("config.json", "\"deepseek_v4\"", "\"deepseek_v41\""); },
       "config.json", "V4.1"},
      {"an index that leads out",
       [](const ModelCopy& m) {
         write_file(m.path / "model.safetensors.index.json",
                    R"({"weight_map": {"embed.weight": "../model.safetensors"}})");
       },
       "model.safetensors.index.json", "../model.safetensors"},
      {"an index of very many values",
       [](const ModelCopy& m) {
         write_file(m.path / "model.safetensors.index.json",
                    "[" + repeat("[],", 60'000'000) + "0]");
       },
       "model.safetensors.index.json", "more than 400000 values"},
  }));
  CAPTURE(damage.name);
  const ModelCopy model;
  damage.apply(model);
  write_file(model.folder / "in.txt", "hi\n");
  const std::string out = model.folder / "out";
  for (const auto& command :
       std::vector<std::vector<std::string>>{{"inspect", model.path},
                                             {"score", "--model", model.path, "--tokens", "5"},
                                             {"chat", "--model", model.path, "--prompt", "hi"},
                                             {"generate", "--model", model.path, "--input",
                                              model.folder / "in.txt", "--output", out}}) {
    CAPTURE(command);
    const auto ran = run_ingot(command);
    CAPTURE(ran.err, ran.peak_bytes);
    CHECK(ran.status == 2);
    CHECK(ran.err.find("ingot: error: ") == 0);
    // The report of inspect says it; standard error, that it does.
    const bool inspects = command[0] == "inspect";
    const std::string& said = inspects ? ran.out : ran.err;
    CHECK(said.find(damage.file) != std::string::npos);
    CHECK(said.find(damage.word) != std::string::npos);
    CHECK((inspects || ran.out.empty()));
    if (inspects) {
      CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
      CHECK(ran.err.find("the report says what is wrong") != std::string::npos);
    }
    CHECK(!std::filesystem::exists(out));
    if (!kSanitized) CHECK(ran.peak_bytes < kRefusedPeakBytes);
  }
}

TEST_CASE("a tokenizer of a million added tokens or without BOS is refused within 100 MB",
          "[cpu][cli]") {
  const ModelCopy model;
  const auto refuse = [&](std::string_view word) {
    refused(run_ingot({"chat", "--model", model.path, "--prompt", "hi"}), word);
    refused(run_ingot({"tokens", "--model", model.path, "--text", "hi"}), word);
  };
  SECTION("a million added tokens") {
    const std::string begin = "\"added_tokens\": [";
    model.replace("tokenizer.json", begin,
                  begin + repeat("{\"id\":1,\"content\":\"x\"},", 12 * kMiB));
    refuse("more than the 16384 supported");
  }
  SECTION("a million added tokens in a file that is too long to be read") {
    const std::string begin = "\"added_tokens\": [";
    model.replace("tokenizer.json", begin,
                  begin + repeat("{\"id\":1,\"content\":\"x\"},", 25'000'000));
    refuse("more than the 16 MiB supported");
  }
  SECTION("a broken merge") {
    model.replace("tokenizer.json", "\"merges\": [", "\"merges\": [\"q q\", ");
    refuse("model.merges[0]: \"qq\" is not in model.vocab");
  }
  SECTION("no BOS") {
    model.replace("tokenizer.json", "<｜begin▁of▁sentence｜>", "<bos>");
    refuse("markers are missing: <｜begin▁of▁sentence｜>");
  }
}

TEST_CASE("a hostile conversation file of 16 MiB is refused within 100 MB", "[cpu][cli]") {
  const auto [begin, part, end, word] =
      GENERATE(table<const char*, const char*, const char*, const char*>({
          {R"([{"role": "user", "content": ")", "\\u00e9", "", "no end"},
          {R"([{"role": "user", "content": ")", "x", R"(\u12"}])", "an escape that is none"},
          {R"([{"role": "user", "content": ")", "word ", R"("}])", "--context"},
          {R"([{"role": "king", "content": ")", "word ", R"("}])", "king"},
          {R"([{")", "k", R"(": 1, "role": "user", "content": "x"}])", "unknown field"},
          {R"([)", R"({"role": "user", "content": "x"}, )", "0]", "160000 JSON values"},
          {R"([)", "7", "]", "a number of"},
          {"", "[", "", "nested too deeply"},
          {R"([{"role": "user", "content": "x"}], )", " ", "x", "not valid JSON"},
      }));
  CAPTURE(begin, part);
  const TempDir folder;
  write_file(folder / "c.json", begin + repeat(part, 16 * kMiB - 200) + end);
  refused(run_ingot({"chat", "--model", tiny_model(), "--conversation", folder / "c.json"}), word);
  if (word != std::string_view("--context")) {
    refused(run_ingot({"tokens", "--model", tiny_model(), "--messages", folder / "c.json"}), word);
  }
}

TEST_CASE("a conversation file over 16 MiB is refused unread", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "c.json", "");
  std::filesystem::resize_file(folder / "c.json", 1'000'000'000);  // sparse
  refused(run_ingot({"chat", "--model", tiny_model(), "--conversation", folder / "c.json"}),
          "longer than 16777216 bytes");
  refused(run_ingot({"tokens", "--model", tiny_model(), "--messages", folder / "c.json"}),
          "longer than 16777216 bytes");
}

TEST_CASE("too much on a pipe is refused within 100 MB", "[cpu][cli]") {
  const std::string much = repeat("word ", 40 * kMiB);
  ProgramOptions options;
  options.input = much;
  refused(run_ingot({"tokens", "--model", tiny_model(), "--input", "-"}, options), "longer than");
  refused(run_ingot({"tokens", "--model", tiny_model(), "--messages", "-"}, options),
          "longer than");
  refused(run_ingot({"score", "--model", tiny_model(), "--input", "-"}, options), "longer than");
}

TEST_CASE("a file of one long word is refused within 100 MB, and its place is named",
          "[cpu][cli]") {
  const TempDir folder;
  const bool json = GENERATE(false, true);
  const auto tokens = [&] {
    std::vector<std::string> arguments{"tokens", "--model", tiny_model(), "--input",
                                       folder / "t.txt"};
    if (json) arguments.emplace_back("--json");
    return run_ingot(arguments);
  };
  // Nothing is printed of what stands before it.
  write_file(folder / "t.txt", repeat("word ", 3 * kMiB) + "x" + repeat("深", 17 * kMiB));
  refused(tokens(), "from byte 3145724 on");
  write_file(folder / "t.txt", "");
  std::filesystem::resize_file(folder / "t.txt", 300'000'000);
  refused(tokens(), "t.txt: the 16 MiB from byte 0 on are one word");
}

TEST_CASE("a file of any length has its ids in little memory", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "t.txt", repeat("word and 12 words.\n", 24 * kMiB));
  ProgramOptions options;
  write_file(folder / "out", "");
  options.output_file = folder / "out";
  const auto ran = run_ingot(
      {"tokens", "--model", tiny_model(), "--input", folder / "t.txt", "--json"}, options);
  CHECK(ran.status == 0);
  if (!kSanitized) CHECK(ran.peak_bytes < 40 * kMiB);
}

TEST_CASE("what is no text in a file is encoded with one warning that names the first place",
          "[cpu][cli]") {
  const TempDir folder;
  // The first MiB is a part of its own; the places are those of the file.
  write_file(folder / "t.txt",
             repeat("good words.\n", kMiB + kMiB / 2) + "caf\xE9 \xE6\xB7." + std::string(1, '\0'));
  const std::size_t first = std::filesystem::file_size(folder / "t.txt") - 6;
  const auto warned = [&](const ProgramResult& ran, std::string_view count, std::size_t at) {
    CAPTURE(ran.err);
    CHECK(ran.status == 0);
    CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
    CHECK(ran.err.find(std::string(count) + " no text, the first at byte " + std::to_string(at)) !=
          std::string::npos);
  };
  warned(run_ingot({"tokens", "--model", tiny_model(), "--input", folder / "t.txt", "--json"}),
         "t.txt: 3 places of it are", first);
  write_file(folder / "s.txt", "caf\xE9 au lait");
  warned(
      run_ingot({"score", "--model", tiny_model(), "--device", "cpu", "--input", folder / "s.txt"}),
      "s.txt: 1 place of it is", 3);
  write_file(folder / "s.txt", "caf\u00E9 au lait");
  CHECK(run_ingot({"tokens", "--model", tiny_model(), "--input", folder / "s.txt"}).err.empty());
}

TEST_CASE("every command that reads a text refuses UTF-16 with the same words", "[cpu][cli]") {
  const TempDir folder;
  const std::string text("\xFF\xFEh\0i\0\n\0", 8);
  write_file(folder / "t.txt", text);
  ProgramOptions options;
  options.input = text;
  for (const std::string& file : {(folder / "t.txt").string(), std::string("-")}) {
    for (std::vector<std::string> command : {std::vector<std::string>{"tokens"},
                                             {"score"},
                                             {"generate", "--format", "text", "--output", "-"}}) {
      command.insert(command.end(), {"--model", tiny_model(), "--input", file});
      const auto ran = run_ingot(command, options);
      CAPTURE(command, ran.err);
      CHECK(ran.status == 2);
      CHECK(ran.out.empty());
      CHECK(ran.err.find((file == "-" ? "standard input" : file) +
                         ": it is UTF-16, not UTF-8; convert it (iconv -f UTF-16 -t UTF-8)") !=
            std::string::npos);
    }
  }
}

TEST_CASE("a text that cannot fit the context is not scored, within 100 MB", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "t.txt", repeat("word ", 16 * kMiB - 10));
  refused(run_ingot({"score", "--model", tiny_model(), "--input", folder / "t.txt"}), "--context");
  std::filesystem::resize_file(folder / "t.txt", 1'000'000'000);
  refused(run_ingot({"score", "--model", tiny_model(), "--input", folder / "t.txt"}),
          "longer than");
}

TEST_CASE("a line of 15 MiB in a chat is refused within 100 MB beside the model", "[cpu][cli]") {
  const std::string input = repeat("word ", 15 * kMiB) + "\nhello\n";
  ProgramOptions options;
  options.input = input;
  const auto ran = run_ingot({"chat", "--model", tiny_model(), "--device", "cpu", "--temperature",
                              "0", "--max-tokens", "2"},
                             options);
  CHECK(ran.status == 2);
  CHECK(ran.err.find("--context") != std::string::npos);
  CHECK(!ran.out.empty());  // the other line is answered
  if (!kSanitized) CHECK(ran.peak_bytes < kRefusedPeakBytes);
}

TEST_CASE("score that fails half-way prints no JSON", "[cpu][cli]") {
  const TempDir folder;
  write_changed_tiny_model(folder / "nan", "embed.weight", {7}, kNan);
  const auto score = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"score", "--model",  folder / "nan", "--device",
                                       "cpu",   "--tokens", "5,6,7,8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_ingot(arguments);
  };
  const auto json = score({"--json"});
  CAPTURE(json.err);
  CHECK(json.status == 2);
  CHECK(json.out.empty());
  CHECK(json.err.find("position 2") != std::string::npos);
  CHECK(json.err.find("ingot inspect --hash") != std::string::npos);
  // The table is for people: its lines stand, and no sum follows them.
  const auto table = score({});
  CHECK(table.status == 2);
  CHECK(table.out.find("perplexity") == std::string::npos);
}

TEST_CASE("NaN ends the answers that it came up in, and is told once at the end", "[cpu][cli]") {
  const TempDir folder;
  write_changed_tiny_model(folder / "nan", "head.weight", {7}, kNan);
  write_file(folder / "in.txt", "one\ntwo\n");
  const auto generated =
      run_ingot({"generate", "--model", folder / "nan", "--device", "cpu", "--input",
                 folder / "in.txt", "--output", folder / "out.jsonl"});
  CAPTURE(generated.err);
  CHECK(generated.status == 1);
  const std::string told = "NaN came up while the model ran, in 2 rows of logits";
  const auto at = generated.err.find(told);
  CHECK(at != std::string::npos);
  CHECK(generated.err.find("NaN came up", at + 1) == std::string::npos);
  const std::string answers = read_file(folder / "out.jsonl");
  CHECK(answers.find("generation_failed") != std::string::npos);
  CHECK(answers.find("1 of ") != std::string::npos);
  const auto chatted =
      run_ingot({"chat", "--model", folder / "nan", "--device", "cpu", "-p", "one"});
  CAPTURE(chatted.err);
  CHECK(chatted.status == 2);
  // Once: the answer that it ended is the only one.
  CHECK(chatted.err.find("logits are NaN or infinite") != std::string::npos);
  CHECK(std::count(chatted.err.begin(), chatted.err.end(), '\n') == 1);
}

TEST_CASE("every command says the same of a full disk behind standard output", "[cpu][cli]") {
  const std::string model = tiny_model();
  const auto arguments = GENERATE_COPY(values<std::vector<std::string>>({
      {"inspect", model},
      {"inspect", model, "--json"},
      {"inspect", model, "--hash"},
      {"tokens", "--model", model, "--text", "hello"},
      {"tokens", "--model", model, "--text", "hello", "--json"},
      {"tokens", "--model", model, "--text", std::string(20'000, 'x')},
      {"score", "--model", model, "--device", "cpu", "--tokens", "5,6"},
      {"score", "--model", model, "--device", "cpu", "--tokens", "5,6", "--json"},
      {"doctor"},
      {"doctor", "--settings", "--json"},
      {"chat", "--model", model, "--device", "cpu", "--prompt", "hello", "--max-tokens", "2"},
      {"--version"},
      {"inspect", "--help"},
  }));
  CAPTURE(arguments);
  ProgramOptions options;
  options.output_file = "/dev/full";
  const auto ran = run_ingot(arguments, options);
  CHECK(ran.status == 1);
  CHECK(ran.err ==
        "ingot: error: writing to standard output: No space left on device; free space, or name a "
        "place on another disk\n");
}
