#include "src/cli/tokens_command.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "runtime/base/error.hpp"
#include "runtime/base/log.hpp"
#include "src/cli/text_parts.hpp"
#include "src/text/tokenizer.hpp"
#include "src/text/utf8.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

std::filesystem::path real_model() {
  return test::golden_dir() / "../../configs/deepseek-v4-flash";
}

/// What the command prints, or "error: …".
std::string run(const TokensOptions& options) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* out = ::open_memstream(&text, &size);
  std::string printed;
  try {
    const int status = run_tokens(options, out);
    CHECK(status == 0);
    std::fclose(out);
    printed.assign(text, size);
  } catch (const EngineError& error) {
    std::fclose(out);
    printed = "error: " + error.error().message;
    CHECK(exit_status(error.error().code) == 2);
  }
  std::free(text);
  return printed;
}

TokensOptions options_for(std::string text) {
  TokensOptions options;
  options.model = real_model();
  options.text = std::move(text);
  return options;
}

}  // namespace

TEST_CASE("tokens prints the ids of a text as JSON and as a table", "[cpu][cli]") {
  TokensOptions options = options_for("Hello, world!\n😀");
  CHECK(run(options) ==
        " 19923  \"Hello\"\n    14  \",\"\n  2058  \" world\"\n  8567  \"!\\n\"\n"
        " 28927  \"\\xF0\\x9F\\x98\"\n   225  \"\\x80\"\n6 tokens\n");
  options.json = true;
  const auto json = nlohmann::json::parse(run(options));
  CHECK(json["prompt"] == "Hello, world!\n😀");
  CHECK(json["ids"].size() == 6);
}

TEST_CASE("tokens shows special tokens typed by a user as ordinary pieces", "[cpu][cli]") {
  TokensOptions options = options_for("<｜User｜></think>");
  CHECK_THAT(run(options), !Catch::Contains("control"));
  options.allow_special = true;
  CHECK(run(options) ==
        "128803  \"<｜User｜>\"  control\n128822  \"</think>\"  control\n2 tokens\n");
}

TEST_CASE("tokens shows each of the special tokens as ordinary pieces", "[cpu][cli]") {
  const Tokenizer tokenizer = value_or_throw(Tokenizer::load(real_model()));
  std::string all;
  int added = 0;
  for (TokenId id = 0; id < tokenizer.size(); ++id) {
    if (!tokenizer.is_added(id)) continue;
    all += tokenizer.bytes(id);
    ++added;
  }
  CHECK(added == 1283);
  TokensOptions options = options_for(all);
  CHECK(run(options).find("control") == std::string::npos);
  options.allow_special = true;
  const std::string printed = run(options);
  CHECK(printed.ends_with("1283 tokens\n"));
}

TEST_CASE("tokens renders a file of messages", "[cpu][cli]") {
  const test::TempDir dir;
  test::write_file(dir / "chat.json", R"([{"role": "user", "content": "Hi <think>"}])");
  TokensOptions options;
  options.model = real_model();
  options.messages = dir / "chat.json";
  options.thinking = Thinking::high;
  options.json = true;
  const auto json = nlohmann::json::parse(run(options));
  CHECK(json["prompt"] == "<｜begin▁of▁sentence｜><｜User｜>Hi <think><｜Assistant｜><think>");
  const auto ids = json["ids"].get<std::vector<int>>();
  CHECK(std::count(ids.begin(), ids.end(), 128821) == 1);

  options.thinking = Thinking::low;
  CHECK_THAT(run(options), Catch::Contains("error: ") && Catch::Contains("none, high and max"));
}

TEST_CASE("tokens takes the efforts of the checkpoint beside the tokenizer", "[cpu][cli]") {
  const test::TempDir dir;
  std::filesystem::copy(real_model() / "tokenizer.json.zst", dir.path());
  test::write_file(dir / "chat.json", R"([{"role": "user", "content": "Hi"}])");
  TokensOptions options;
  options.model = dir.path();
  options.messages = dir / "chat.json";
  options.thinking = Thinking::low;
  log::set_level(log::Level::off);
  CHECK_THAT(run(options), Catch::Contains("error: "));  // a tokenizer alone: April's
  log::set_level(log::Level::info);

  auto config = nlohmann::json::parse(test::read_file(real_model() / "config.json"));
  config["dspark_block_size"] = 5;
  config["dspark_target_layer_ids"] = {40, 41, 42};
  test::write_file(dir / "config.json", config.dump());
  CHECK_THAT(run(options), Catch::Contains("<think>"));
}

TEST_CASE("tokens writes bytes that are not UTF-8 as replacement characters", "[cpu][cli]") {
  const test::TempDir dir;
  test::write_file(dir / "bytes", "a\xFF\xE6\xB7z");
  TokensOptions options;
  options.model = real_model();
  options.input = dir / "bytes";
  options.json = true;
  const std::string printed = run(options);
  CHECK(is_utf8(printed));
  CHECK(nlohmann::json::parse(printed)["prompt"] == "a\uFFFD\uFFFDz");
}

TEST_CASE("tokens refuses a file in UTF-16, with or without a byte-order mark", "[cpu][cli]") {
  const test::TempDir dir;
  TokensOptions options;
  options.model = dir / "missing";  // the input is looked at first
  options.input = dir / "t.txt";
  const auto refuses = [&](const std::string& text, const std::string& encoding) {
    test::write_file(dir / "t.txt", text);
    CHECK_THAT(run(options), Catch::Contains("t.txt: it is UTF-") &&
                                 Catch::Contains("iconv -f " + encoding + " -t UTF-8"));
  };
  refuses(std::string("\xFF\xFEh\0i\0\n\0", 8), "UTF-16");
  refuses(std::string("\xFE\xFF\0h\0i\0\n", 8), "UTF-16");
  refuses(std::string("\xFF\xFE\0\0h\0\0\0", 8), "UTF-32");
  refuses(std::string("h\0i\0\n\0", 6), "UTF-16LE");
  refuses(std::string("\0h\0i\0\n", 6), "UTF-16BE");
  options.input.clear();
  options.messages = dir / "t.txt";
  refuses(std::string("\xFF\xFE[\0]\0", 6), "UTF-16");
}

TEST_CASE("a long file has the ids of its text in one piece", "[cpu][cli]") {
  const test::TempDir dir;
  // Parts of a MiB end in the middle of any of these.
  std::string text = "\n\n";
  for (int i = 0; text.size() < std::size_t{5} << 19; ++i) {
    text += "line " + std::to_string(i) + "\xE6\xB7 深度。\r\n \u3000 <think> don't" +
            std::string(static_cast<std::size_t>(i % 7), i % 2 == 0 ? '\n' : ' ');
  }
  test::write_file(dir / "t.txt", text);
  const Tokenizer tokenizer = value_or_throw(Tokenizer::load(real_model()));
  TokensOptions options;
  options.model = real_model();
  options.input = dir / "t.txt";
  options.json = true;
  options.allow_special = GENERATE(false, true);
  const auto json = nlohmann::json::parse(run(options));
  std::string mended;
  CHECK(json["prompt"] == mend_utf8(text, mended));
  CHECK(json["ids"] == tokenizer.encode(text, options.allow_special ? AddedTokens::recognise
                                                                    : AddedTokens::as_text));
  test::write_file(dir / "t.txt", "");
  CHECK(run(options) == "{\"prompt\": \"\", \"ids\": []}\n");
  options.json = false;
  CHECK(run(options) == "0 tokens\n");
}

TEST_CASE("what is no text is counted once each, wherever a file is cut", "[cpu][cli]") {
  const test::TempDir dir;
  std::string text = "\n";
  int faults = 0;
  for (; text.size() < std::size_t{5} << 19; ++faults) {
    text += "line \xE6\xB7 深度。\r\n";
    text.append(static_cast<std::size_t>(faults % 7), ' ');
  }
  text += std::string("end\0", 4) + "\xE6\xB7";  // the last is cut off
  test::write_file(dir / "t.txt", text);
  const Tokenizer tokenizer = value_or_throw(Tokenizer::load(real_model()));
  const AddedTokens added = GENERATE(AddedTokens::as_text, AddedTokens::recognise);
  TextParts parts = value_or_throw(TextParts::open(tokenizer, added, dir / "t.txt"));
  const TextFaults found = value_or_throw(parts.check());
  CHECK(found.count == faults + 2);
  CHECK(found.first == 6);
  TextFaults whole;
  whole.add(text, 0);
  CHECK(whole.count == found.count);
  CHECK(whole.first == found.first);
}

TEST_CASE("tokens refuses what it cannot do and says what to do", "[cpu][cli]") {
  const test::TempDir dir;
  TokensOptions options = options_for("x");
  options.input = dir / "also";
  CHECK_THAT(run(options), Catch::Contains("exactly one of"));
  options = options_for("x");
  options.keep_thinking = true;
  CHECK_THAT(run(options), Catch::Contains("go with --messages"));
  options = options_for("x");
  options.model = dir.path();
  CHECK_THAT(run(options), Catch::Contains("holds no tokenizer.json"));
  options.model = dir / "missing";
  CHECK_THAT(run(options), Catch::Contains("no such file"));
  options = {};
  options.model = real_model();
  options.messages = dir / "missing.json";
  CHECK_THAT(run(options), Catch::Contains("missing.json: no such file"));
  options.model = dir / "missing";  // the input is looked at first
  CHECK_THAT(run(options), Catch::Contains("missing.json: no such file"));
  options.model = real_model();
  options.messages = dir.path();
  CHECK_THAT(run(options), Catch::Contains("a folder"));
  test::write_file(dir / "order.json", R"([{"role": "assistant", "content": "Hi"}])");
  options.messages = dir / "order.json";
  CHECK_THAT(run(options), Catch::Contains("order.json") && Catch::Contains("messages[0]"));
}
