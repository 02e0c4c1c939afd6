// Names and texts from outside that would steer a terminal: each source of them, in the built
// program's messages and reports.
#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>

#include "runtime/base/printable.hpp"
#include "runtime/base/utf8.hpp"
#include "tests/support/made_checkpoint.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/tiny_model.hpp"

using namespace ingot::test;
namespace fs = std::filesystem;

namespace {

/// A title sequence, a C1 control, an override of the writing direction, a forged line, no UTF-8.
const std::string kNasty = "n\x1b]0;x\x07\u009b2J\u202ex\ningot: error: forged\xFF";
/// The same where only text can stand, as an escape of JSON and TOML.
const std::string kNastyEscaped = R"(n\u001b]0;x\u0007\u009b2J\u202ex\ningot: error: forged)";

struct Source {
  const char* name;
  std::function<std::vector<std::string>(const TempDir&)> prepare;
  std::string input = {};
  int status = 2;
};

void copy_model(const fs::path& to) {
  write_changed_tiny_model(to, "embed.weight", {}, 0);
}

void replace(const fs::path& file, std::string_view what, std::string_view with) {
  std::string text = read_file(file);
  const auto at = text.find(what);
  REQUIRE(at != std::string::npos);
  write_file(file, text.replace(at, what.size(), with));
}

/// Nothing steers a terminal, and no name begins a line of ours.
void check_shown(const std::string& text) {
  CAPTURE(text);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    CHECK(ingot::printable(line) == line);
    CHECK(line.find("ingot: error: forged") != 0);
    at = end + 1;
  }
}

}  // namespace

TEST_CASE("outside text of every source is spelled out in what is printed", "[cpu][cli]") {
  const std::string tiny = tiny_model();
  const auto source = GENERATE_COPY(values<Source>({
      {"a command", [](const TempDir&) { return std::vector<std::string>{kNasty}; }},
      {"an option",
       [](const TempDir&) {
         return std::vector<std::string>{"chat", "--" + kNasty};
       }},
      {"an argument that is too many",
       [](const TempDir&) {
         return std::vector<std::string>{"tokens", "--text", "x", kNasty};
       }},
      {"a value of an option",
       [](const TempDir&) {
         return std::vector<std::string>{"chat", "--temperature", kNasty};
       }},
      {"a choice",
       [](const TempDir&) {
         return std::vector<std::string>{"chat", "--thinking", kNasty};
       }},
      {"a model's path",
       [](const TempDir&) {
         return std::vector<std::string>{"inspect", kNasty};
       }},
      {"a model's path to run",
       [](const TempDir&) {
         return std::vector<std::string>{"score", "--tokens", "5", "--model", kNasty};
       }},
      {"a shard's name on disk",
       [](const TempDir& dir) {
         copy_model(dir / "m");
         write_file(dir / "m" / (kNasty + ".safetensors"), "x");
         return std::vector<std::string>{"inspect", dir / "m"};
       }},
      {"a shard's name in the index",
       [](const TempDir& dir) {
         copy_model(dir / "m");
         write_file(dir / "m/model.safetensors.index.json",
                    R"({"weight_map": {"embed.weight": ")" + kNastyEscaped + ".safetensors\"}}");
         return std::vector<std::string>{"inspect", dir / "m"};
       }},
      {"a tensor's name",
       [](const TempDir& dir) {
         copy_model(dir / "m");
         write_file(dir / "m/more.safetensors",
                    safetensors_bytes("{\"" + kNastyEscaped +
                                          "\": {\"dtype\": \"U8\", \"shape\": [1], "
                                          "\"data_offsets\": [0, 1]}}",
                                      "x"));
         return std::vector<std::string>{"inspect", dir / "m", "--hash"};
       },
       {},
       0},
      {"a field of config.json",
       [](const TempDir& dir) {
         copy_model(dir / "m");
         replace(dir / "m/config.json", "\"deepseek_v4\"", "\"" + kNastyEscaped + "\"");
         return std::vector<std::string>{"score", "--tokens", "5", "--model", dir / "m"};
       }},
      {"a merge of the tokenizer",
       [](const TempDir& dir) {
         copy_model(dir / "m");
         replace(dir / "m/tokenizer.json", "\"merges\": [",
                 R"("merges": ["n\u001b]0;x\u202e q", )");
         return std::vector<std::string>{"tokens", "--text", "x", "--model", dir / "m"};
       }},
      {"a key of the settings file",
       [](const TempDir& dir) {
         write_file(dir / "s.toml", "[sampling]\n\"" + kNastyEscaped + "\" = 1\n");
         return std::vector<std::string>{"chat", "--config", dir / "s.toml"};
       }},
      {"a value of the settings file",
       [](const TempDir& dir) {
         write_file(dir / "s.toml", "[chat]\nthinking = \"" + kNastyEscaped + "\"\n");
         return std::vector<std::string>{"chat", "--config", dir / "s.toml"};
       }},
      {"a settings file that is no TOML",
       [](const TempDir& dir) {
         write_file(dir / "s.toml", "[sampling]\n" + kNasty + "\n");
         return std::vector<std::string>{"chat", "--config", dir / "s.toml"};
       }},
      {"a settings file's path",
       [](const TempDir&) {
         return std::vector<std::string>{"chat", "--config", kNasty};
       }},
      {"a setting that the doctor shows",
       [](const TempDir& dir) {
         write_file(dir / "s.toml", "[chat]\nsystem = \"" + kNastyEscaped + "\"\n");
         return std::vector<std::string>{"doctor", "--settings", "--config", dir / "s.toml"};
       },
       {},
       0},
      {"the path of a text",
       [tiny](const TempDir&) {
         return std::vector<std::string>{"tokens", "--model", tiny, "--input", kNasty};
       }},
      {"the path of a conversation",
       [tiny](const TempDir&) {
         return std::vector<std::string>{"tokens", "--model", tiny, "--messages", kNasty};
       }},
      {"a field of a conversation",
       [tiny](const TempDir& dir) {
         write_file(dir / "c.json",
                    R"([{"role": "user", "content": "x", ")" + kNastyEscaped + "\": 1}]");
         return std::vector<std::string>{"tokens", "--model", tiny, "--messages", dir / "c.json"};
       }},
      {"a call's id in a conversation",
       [tiny](const TempDir& dir) {
         write_file(dir / "c.json",
                    R"([{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls":
                       [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]},
                       {"role": "tool", "content": "x", "tool_call_id": ")" +
                        kNastyEscaped + "\"}]");
         return std::vector<std::string>{"tokens", "--model", tiny, "--messages", dir / "c.json"};
       }},
      {"the path of a batch",
       [tiny](const TempDir& dir) {
         return std::vector<std::string>{"generate", "--model", tiny,       "--format", "jsonl",
                                         "--input",  kNasty,    "--output", dir / "out"};
       }},
      {"the path of a batch's output",
       [tiny](const TempDir& dir) {
         write_file(dir / "in.txt", "x\n");
         write_file(dir / kNasty, "x\n");
         return std::vector<std::string>{"generate",     "--model",  tiny,        "--input",
                                         dir / "in.txt", "--output", dir / kNasty};
       }},
      {"a url of a batch's line",
       [tiny](const TempDir& dir) {
         write_file(dir / "in.jsonl", "{\"custom_id\": \"" + kNastyEscaped + "\", \"url\": \"" +
                                          kNastyEscaped + "\"}\n");
         return std::vector<std::string>{
             "generate", "--model",        tiny,       "--device",  "cpu",
             "--input",  dir / "in.jsonl", "--output", dir / "out", "--text"};
       },
       {},
       1},
      {"a custom_id of an earlier answer",
       [tiny](const TempDir& dir) {
         write_file(dir / "in.jsonl", "{\"custom_id\": \"a\"}\n");
         write_file(dir / "out", "{\"id\": \"batch_req_1\", \"custom_id\": \"" + kNastyEscaped +
                                     "\", \"response\": null, \"error\": {\"code\": \"x\", "
                                     "\"message\": \"x\"}}\n");
         return std::vector<std::string>{"generate",       "--model",  tiny,        "--input",
                                         dir / "in.jsonl", "--output", dir / "out", "--resume"};
       }},
      {"a field of a template",
       [tiny](const TempDir& dir) {
         write_file(dir / "t.json", R"([{"role": "user", "content": "{{a}}", ")" + kNastyEscaped +
                                        "\": \"{{b}}\"}]");
         write_file(dir / "in.jsonl", "{\"a\": \"x\", \"b\": \"y\"}\n");
         return std::vector<std::string>{
             "generate",       "--model",  tiny,        "--device", "cpu",        "--input",
             dir / "in.jsonl", "--output", dir / "out", "--text",   "--template", dir / "t.json"};
       },
       {},
       1},
      {"a command of a chat",
       [tiny](const TempDir&) {
         return std::vector<std::string>{"chat", "--model", tiny, "--device", "cpu"};
       },
       "/help " + kNasty.substr(0, kNasty.find('\n')) + "\n"},
      {"a file that a chat attaches",
       [tiny](const TempDir&) {
         return std::vector<std::string>{"chat", "--model", tiny, "--device", "cpu"};
       },
       "/attach " + kNasty.substr(0, kNasty.find('\n')) + "\n"},
      {"a session's name",
       [tiny](const TempDir&) {
         return std::vector<std::string>{"chat",      "--model", tiny,       "--device", "cpu",
                                         "--session", kNasty,    "--prompt", "x"};
       }},
      {"a tool's name",
       [tiny](const TempDir& dir) {
         write_file(dir / "t.json", R"([{"type": ")" + kNastyEscaped + "\"}]");
         return std::vector<std::string>{"chat",   "--model",      tiny,       "--device", "cpu",
                                         "--tool", dir / "t.json", "--prompt", "x"};
       }},
      {"a folder of vectors",
       [tiny](const TempDir&) {
         return std::vector<std::string>{"score", "--model", tiny, "--vectors", kNasty};
       }},
      {"a model's config to prewarm",
       [](const TempDir&) {
         return std::vector<std::string>{"prewarm", "--config", kNasty};
       }},
      {"a bundle's path",
       [](const TempDir&) {
         return std::vector<std::string>{"cache", "import", kNasty};
       }},
      {"an output folder of synth",
       [tiny](const TempDir& dir) {
         fs::create_directories(dir / kNasty);
         write_file(dir / kNasty / "x", "x");
         return std::vector<std::string>{"synth", "--config", fs::path(tiny) / "config.json",
                                         dir / kNasty};
       }},
  }));
  CAPTURE(source.name);
  const TempDir folder;
  ProgramOptions options;
  options.environment[0] = "HOME=" + folder.path().string();
  options.input = source.input;
  const auto ran = run_ingot(source.prepare(folder), options);
  CAPTURE(ran.err, ran.out);
  CHECK(ran.status == source.status);
  check_shown(ran.err);
  check_shown(ran.out);
}
