// What the built program says of bad input names what was attempted, on what, and what to do.
#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>

#include "tests/support/run_program.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/tiny_model.hpp"

using namespace ingot::test;
namespace fs = std::filesystem;

namespace {

using Words = std::vector<std::string>;

struct Mistake {
  const char* name;
  std::function<Words(const TempDir&)> prepare;
  const char* file;    ///< that the message names
  const char* remedy;  ///< that it ends with, or names
};

Words generate(const std::string& input, const std::string& output) {
  return {"generate", "--model", tiny_model(), "--input", input, "--output", output};
}

/// A tiny model whose shard is something else.
Words with_shard(const TempDir& dir, const std::function<void(const fs::path&)>& make) {
  write_changed_tiny_model(dir / "m", "embed.weight", {}, 0);
  fs::remove(dir / "m/model.safetensors");
  make(dir / "m/model.safetensors");
  return {"score", "--model", dir / "m", "--tokens", "5"};
}

Words with_messages(const TempDir& dir, const char* json) {
  write_file(dir / "c.json", json);
  return {"tokens", "--model", tiny_model(), "--messages", dir / "c.json"};
}

}  // namespace

TEST_CASE("every refusal of a file names it and what to do", "[cpu][cli]") {
  const auto mistake = GENERATE(values<Mistake>({
      {"score of no model",
       [](const TempDir&) {
         return Words{"score", "--model", "/nonexistent", "--tokens", "5"};
       },
       "/nonexistent", "give the folder of a checkpoint"},
      {"chat with no model",
       [](const TempDir&) {
         return Words{"chat", "--model", "/nonexistent", "--prompt", "x"};
       },
       "/nonexistent", "give the folder of a checkpoint"},
      {"generate with no model",
       [](const TempDir& dir) {
         write_file(dir / "in.txt", "x\n");
         return Words{"generate",     "--model",  "/nonexistent", "--input",
                      dir / "in.txt", "--output", dir / "out"};
       },
       "/nonexistent", "give the folder of a checkpoint"},
      {"inspect of no model",
       [](const TempDir&) {
         return Words{"inspect", "/nonexistent"};
       },
       "/nonexistent", "give the folder of a checkpoint"},
      {"tokens with no model",
       [](const TempDir&) {
         return Words{"tokens", "--model", "/nonexistent", "--text", "x"};
       },
       "/nonexistent", "use the unchanged tokenizer.json"},
      {"prewarm of no config",
       [](const TempDir&) {
         return Words{"prewarm", "--arch", "sm_90a", "--config", "/nonexistent"};
       },
       "/nonexistent", "check the path"},
      {"synth of no config",
       [](const TempDir& dir) {
         return Words{"synth", "--config", "/nonexistent", dir / "out"};
       },
       "/nonexistent", "check the path"},
      {"no bundle",
       [](const TempDir&) {
         return Words{"cache", "import", "/nonexistent"};
       },
       "/nonexistent", "check the path"},
      {"a shard that is a pipe",
       [](const TempDir& dir) {
         return with_shard(dir, [](const fs::path& path) { ::mkfifo(path.c_str(), 0600); });
       },
       "model.safetensors", "put a regular file there"},
      {"a shard that is a device",
       [](const TempDir& dir) {
         return with_shard(dir,
                           [](const fs::path& path) { fs::create_symlink("/dev/zero", path); });
       },
       "model.safetensors", "put a regular file there"},
      {"a shard that is a folder",
       [](const TempDir& dir) {
         return with_shard(dir, [](const fs::path& path) { fs::create_directory(path); });
       },
       "model.safetensors", "put a regular file there"},
      {"a shard that is a circle of links",
       [](const TempDir& dir) {
         return with_shard(dir, [](const fs::path& path) { fs::create_symlink(path, path); });
       },
       "model.safetensors", "mend them"},
      {"a shard that is a link to nothing",
       [](const TempDir& dir) {
         return with_shard(dir,
                           [](const fs::path& path) { fs::create_symlink("/nonexistent", path); });
       },
       "model.safetensors", "check the path"},
      {"no input of generate",
       [](const TempDir& dir) { return generate("/nonexistent.txt", dir / "out"); },
       "/nonexistent.txt", "check the path"},
      {"a folder as input of generate",
       [](const TempDir& dir) {
         fs::create_directory(dir / "in.txt");
         return generate(dir / "in.txt", dir / "out");
       },
       "in.txt", "name a file"},
      {"a device as input of generate",
       [](const TempDir& dir) {
         Words words = generate("/dev/zero", dir / "out");
         words.insert(words.end(), {"--format", "jsonl"});
         return words;
       },
       "/dev/zero", "name a file or a pipe"},
      {"a device to merge",
       [](const TempDir& dir) {
         write_file(dir / "in.txt", "x\n");
         Words words = generate(dir / "in.txt", dir / "out");
         words.insert(words.end(), {"--merge", "/dev/zero"});
         return words;
       },
       "/dev/zero", "name one that ingot generate wrote"},
      {"an output in no folder",
       [](const TempDir& dir) {
         write_file(dir / "in.txt", "x\n");
         return generate(dir / "in.txt", dir / "none/out");
       },
       "none/out", "make its folder first"},
      {"statistics in no folder",
       [](const TempDir& dir) {
         write_file(dir / "in.txt", "x\n");
         Words words = generate(dir / "in.txt", dir / "out");
         words.insert(words.end(), {"--stats", dir / "none/stats", "--device", "cpu"});
         return words;
       },
       "none/stats", "make its folder first"},
      {"a text without end",
       [](const TempDir&) {
         return Words{"tokens", "--model", tiny_model(), "--input", "/dev/zero"};
       },
       "/dev/zero", "name another file"},
      {"a text to score that is a folder",
       [](const TempDir& dir) {
         return Words{"score", "--model", tiny_model(), "--input", dir.path()};
       },
       "", "name a file"},
      {"a settings file that is not there",
       [](const TempDir&) {
         return Words{"chat", "--config", "/nonexistent.toml"};
       },
       "/nonexistent.toml", "check the path"},
      {"settings that are no TOML",
       [](const TempDir& dir) {
         write_file(dir / "s.toml", "[chat\n");
         return Words{"chat", "--config", dir / "s.toml"};
       },
       "s.toml:1", "correct"},
      {"another architecture",
       [](const TempDir& dir) {
         write_file(dir / "config.json", R"({"model_type": "llama"})");
         return Words{"inspect", dir.path()};
       },
       "config.json", "give a checkpoint of DeepSeek-V4"},
      {"messages that are no JSON", [](const TempDir& dir) { return with_messages(dir, "{"); },
       "c.json", "correct the file"},
      {"messages that are a number", [](const TempDir& dir) { return with_messages(dir, "7"); },
       "c.json", "give an array"},
      {"no messages", [](const TempDir& dir) { return with_messages(dir, "{}"); }, "c.json",
       "give an array of them"},
      {"empty messages", [](const TempDir& dir) { return with_messages(dir, "[]"); }, "c.json",
       "at least one is needed"},
      {"a message that is a number", [](const TempDir& dir) { return with_messages(dir, "[7]"); },
       "messages[0]", "give an object"},
      {"a message without a role",
       [](const TempDir& dir) { return with_messages(dir, R"([{"content": "x"}])"); },
       "messages[0].role", "give system, user, assistant or tool"},
      {"a message of another role",
       [](const TempDir& dir) {
         return with_messages(dir, R"([{"role": "king", "content": "x"}])");
       },
       "messages[0].role", "give one of them"},
      {"a message without content",
       [](const TempDir& dir) { return with_messages(dir, R"([{"role": "user"}])"); },
       "messages[0].content", "give a string"},
      {"a message of a picture",
       [](const TempDir& dir) {
         return with_messages(dir, R"([{"role": "user", "content": [{"type": "image_url"}]}])");
       },
       "messages[0].content[0].type", "leave it out"},
      {"a message with an unknown field",
       [](const TempDir& dir) {
         return with_messages(dir, R"([{"role": "user", "content": "x", "y": 1}])");
       },
       "unknown field \"y\"", "leave it out"},
      {"an answer to nothing",
       [](const TempDir& dir) {
         return with_messages(dir, R"([{"role": "assistant", "content": "x"}])");
       },
       "messages[0]", "put one before it"},
      {"a system message in the middle",
       [](const TempDir& dir) {
         return with_messages(
             dir, R"([{"role": "user", "content": "x"}, {"role": "system", "content": "x"}])");
       },
       "messages[1]", "move it there, or join them"},
      {"a template that is an array of numbers",
       [](const TempDir& dir) {
         write_file(dir / "in.jsonl", "{}\n");
         write_file(dir / "t.json", "[1]");
         Words words = generate(dir / "in.jsonl", dir / "out");
         words.insert(words.end(), {"--template", dir / "t.json"});
         return words;
       },
       "t.json", "give an object with `messages`"},
  }));
  CAPTURE(mistake.name);
  const TempDir folder;
  const auto ran = run_ingot(mistake.prepare(folder));
  CAPTURE(ran.err);
  CHECK(ran.status == 2);
  CHECK(ran.err.starts_with("ingot: error: "));
  CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
  // Of a checkpoint that is inspected, the report has the words.
  const std::string& said = ran.out.empty() ? ran.err : ran.out;
  CHECK(said.find(mistake.file) != std::string::npos);
  CHECK(said.find(mistake.remedy) != std::string::npos);
  CHECK(!fs::exists(folder / "out"));
}
