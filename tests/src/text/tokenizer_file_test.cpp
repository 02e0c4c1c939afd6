#include <fmt/format.h>
#include <zstd.h>

#include <catch2/catch.hpp>
#include <functional>

#include "src/text/tokenizer.hpp"
#include "src/text/tokenizer_file.hpp"
#include "tests/support/made_tokenizer.hpp"
#include "tests/support/peak_memory.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using test::made_id;
using Json = nlohmann::ordered_json;

namespace {

/// Why a changed tokenizer is refused; "accepted" if it is not.
std::string refusal(const std::string& json, ErrorCode code) {
  const auto tokenizer = Tokenizer::parse(json, "DIR/tokenizer.json");
  if (tokenizer) return "accepted";
  CHECK(tokenizer.error().code == code);
  CHECK_THAT(tokenizer.error().message,
             Catch::StartsWith("reading tokenizer DIR/tokenizer.json: ") &&
                 Catch::Contains("; use the unchanged tokenizer.json"));
  CHECK(tokenizer.error().message.find('\n') == std::string::npos);
  CHECK(tokenizer.error().message.size() < 800);
  return tokenizer.error().message;
}

struct Case {
  const char* name;
  std::function<void(Json&)> change;
  ErrorCode code;
  const char* message;
};

std::string zstd(const std::string& bytes) {
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 1));
  return packed;
}

}  // namespace

TEST_CASE("a small tokenizer of the same kind loads and merges by rank", "[cpu][text]") {
  const Tokenizer tokenizer =
      value_or_throw(Tokenizer::parse(test::made_tokenizer().dump(), "made"));
  CHECK(tokenizer.encode("abc") == std::vector<TokenId>{401});
  CHECK(tokenizer.encode("aab") ==
        std::vector<TokenId>{made_id('a'), 400});  // "a b" ranks before "a a"
  CHECK(tokenizer.encode("aaaaaaa") == std::vector<TokenId>{403, 402, made_id('a')});
  CHECK(tokenizer.encode("a1b") == std::vector<TokenId>{made_id('a'), made_id('1'), made_id('b')});
}

TEST_CASE("merges may be given as pairs", "[cpu][text]") {
  Json json = test::made_tokenizer();
  for (auto& merge : json["model"]["merges"]) {
    const std::string text = merge;
    const std::size_t space = text.find(' ');
    merge = {text.substr(0, space), text.substr(space + 1)};
  }
  const Tokenizer tokenizer = value_or_throw(Tokenizer::parse(json.dump(), "made"));
  CHECK(tokenizer.encode("abc") == std::vector<TokenId>{401});
}

TEST_CASE("a tokenizer with a broken merge, without BOS or otherwise damaged is refused by place",
          "[cpu][text]") {
  const Case damaged = GENERATE(values<Case>({
      {"merge of one", [](Json& j) { j["model"]["merges"][1] = "abc"; }, ErrorCode::corrupt,
       "model.merges[1]: not a pair"},
      {"merge of three", [](Json& j) { j["model"]["merges"][1] = "a b c"; }, ErrorCode::corrupt,
       "model.merges[1]: not a pair"},
      {"merge with nothing", [](Json& j) { j["model"]["merges"][1] = "a "; }, ErrorCode::corrupt,
       "model.merges[1]: not a pair"},
      {"merge that is a number", [](Json& j) { j["model"]["merges"][1] = 5; }, ErrorCode::corrupt,
       "model.merges[1]: not a pair"},
      {"merge array of three",
       [](Json& j) {
         j["model"]["merges"][1] = {"a", "b", "c"};
       },
       ErrorCode::corrupt, "model.merges[1]: not a pair"},
      {"merge array of one", [](Json& j) { j["model"]["merges"][1] = Json::array({"a"}); },
       ErrorCode::corrupt, "model.merges[1]: not a pair"},
      {"merge of unknown", [](Json& j) { j["model"]["merges"][1] = "zz c"; }, ErrorCode::corrupt,
       "model.merges[1]: \"zz\" is not in model.vocab"},
      {"merge to unknown", [](Json& j) { j["model"]["merges"][1] = "x y"; }, ErrorCode::corrupt,
       "model.merges[1]: \"xy\" is not in model.vocab"},
      {"merge twice", [](Json& j) { j["model"]["merges"][1] = "a b"; }, ErrorCode::corrupt,
       "model.merges[1]: \"a b\" is there twice"},
      {"no BOS", [](Json& j) { j["added_tokens"].erase(0); }, ErrorCode::corrupt,
       "markers are missing: <｜begin▁of▁sentence｜>"},
      {"no added tokens", [](Json& j) { j.erase("added_tokens"); }, ErrorCode::corrupt,
       "markers are missing: <｜begin▁of▁sentence｜> <｜end▁of▁sentence｜>"},
      {"added token twice", [](Json& j) { j["added_tokens"].push_back(j["added_tokens"][0]); },
       ErrorCode::corrupt, "added_tokens[14]"},
      {"added token on a taken id", [](Json& j) { j["added_tokens"][2]["id"] = 7; },
       ErrorCode::corrupt, "added_tokens[2]: the text \"<｜User｜>\" or the id 7 is taken"},
      {"added token of the vocabulary with another id",
       [](Json& j) {
         j["added_tokens"].push_back({{"id", 300}, {"content", "ab"}});
       },
       ErrorCode::corrupt, "added_tokens[14]"},
      {"added token without text", [](Json& j) { j["added_tokens"][2]["content"] = ""; },
       ErrorCode::corrupt, "added_tokens[2].content"},
      {"added token without id", [](Json& j) { j["added_tokens"][2].erase("id"); },
       ErrorCode::corrupt, "added_tokens[2].id"},
      {"added token with a negative id", [](Json& j) { j["added_tokens"][2]["id"] = -1; },
       ErrorCode::corrupt, "added_tokens[2].id"},
      {"added token with an absurd id",
       [](Json& j) { j["added_tokens"][2]["id"] = 1'000'000'000'000'000'000; }, ErrorCode::corrupt,
       "added_tokens[2].id"},
      {"added token that is a string", [](Json& j) { j["added_tokens"][2] = "x"; },
       ErrorCode::corrupt, "added_tokens[2]: not an object"},
      {"vocabulary with a fraction", [](Json& j) { j["model"]["vocab"]["ab"] = 1.5; },
       ErrorCode::corrupt, "model.vocab[\"ab\"]: not an integer"},
      {"vocabulary with an absurd id", [](Json& j) { j["model"]["vocab"]["ab"] = 1 << 30; },
       ErrorCode::corrupt, "model.vocab[\"ab\"]: not an integer"},
      {"vocabulary with an id twice", [](Json& j) { j["model"]["vocab"]["ab"] = 3; },
       ErrorCode::corrupt, "the id 3 is there twice"},
      {"vocabulary with an array", [](Json& j) { j["model"]["vocab"]["ab"] = Json::array(); },
       ErrorCode::corrupt, "model.vocab[\"ab\"]: not an integer"},
      {"vocabulary without a byte", [](Json& j) { j["model"]["vocab"].erase("Ċ"); },
       ErrorCode::corrupt, "no token for the byte 0x0a"},
      {"no vocabulary", [](Json& j) { j["model"].erase("vocab"); }, ErrorCode::corrupt,
       "model.vocab: missing"},
      {"vocabulary of the wrong type", [](Json& j) { j["model"]["vocab"] = Json::array(); },
       ErrorCode::corrupt, "model.vocab: missing or of the wrong type"},
      {"no model", [](Json& j) { j.erase("model"); }, ErrorCode::corrupt, "model: missing"},
      {"no pre-tokenizer", [](Json& j) { j.erase("pre_tokenizer"); }, ErrorCode::corrupt,
       "pre_tokenizer: missing"},
      {"very many settings",
       [](Json& j) {
         for (int i = 0; i < 20'000; ++i)
           j["normalizer"]["normalizers"].push_back(i);
       },
       ErrorCode::corrupt, "more than 10000 JSON values"},
      {"a pattern that is none",
       [](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a"; },
       ErrorCode::corrupt, "pattern \"(a\" is no regular expression"},
  }));
  CAPTURE(damaged.name);
  Json json = test::made_tokenizer();
  damaged.change(json);
  CHECK_THAT(refusal(json.dump(), damaged.code), Catch::Contains(damaged.message));
}

TEST_CASE("a tokenizer of another kind is refused by name", "[cpu][text]") {
  const Case other = GENERATE(values<Case>({
      {"Unigram", [](Json& j) { j["model"]["type"] = "Unigram"; }, ErrorCode::unsupported,
       "model of type \"Unigram\""},
      {"WordPiece",
       [](Json& j) {
         j["model"] = {{"type", "WordPiece"}};
       },
       ErrorCode::unsupported, "model of type \"WordPiece\""},
      {"dropout", [](Json& j) { j["model"]["dropout"] = 0.1; }, ErrorCode::unsupported,
       "model.dropout"},
      {"unknown token", [](Json& j) { j["model"]["unk_token"] = "<unk>"; }, ErrorCode::unsupported,
       "model.unk_token"},
      {"byte fallback", [](Json& j) { j["model"]["byte_fallback"] = true; }, ErrorCode::unsupported,
       "model.byte_fallback"},
      {"ignore_merges", [](Json& j) { j["model"]["ignore_merges"] = true; }, ErrorCode::unsupported,
       "model.ignore_merges"},
      {"a new setting", [](Json& j) { j["model"]["cleverness"] = false; }, ErrorCode::unsupported,
       "unknown setting \"cleverness\""},
      {"normalizer",
       [](Json& j) {
         j["normalizer"] = {{"type", "NFKC"}};
       },
       ErrorCode::unsupported, "normalizer of type \"NFKC\""},
      {"normalizers",
       [](Json& j) {
         j["normalizer"]["normalizers"].push_back({{"type", "Lowercase"}});
       },
       ErrorCode::unsupported, "normalizer of type \"Sequence\""},
      {"pre-tokenizer",
       [](Json& j) {
         j["pre_tokenizer"] = {{"type", "Metaspace"}};
       },
       ErrorCode::unsupported, "pre_tokenizer of type \"Metaspace\""},
      {"pre-tokenizer stage",
       [](Json& j) {
         j["pre_tokenizer"]["pretokenizers"][1] = {{"type", "Digits"}};
       },
       ErrorCode::unsupported, "pre_tokenizer.pretokenizers[1] of type \"Digits\""},
      {"split behavior",
       [](Json& j) { j["pre_tokenizer"]["pretokenizers"][1]["behavior"] = "Removed"; },
       ErrorCode::unsupported, "pretokenizers[1].behavior"},
      {"split invert", [](Json& j) { j["pre_tokenizer"]["pretokenizers"][1]["invert"] = true; },
       ErrorCode::unsupported, "pretokenizers[1].invert"},
      {"split string",
       [](Json& j) {
         j["pre_tokenizer"]["pretokenizers"][1]["pattern"] = {{"String", "a"}};
       },
       ErrorCode::unsupported, "pretokenizers[1].pattern"},
      {"prefix space",
       [](Json& j) { j["pre_tokenizer"]["pretokenizers"][3]["add_prefix_space"] = true; },
       ErrorCode::unsupported, "pretokenizers[3].add_prefix_space"},
      {"GPT-2's own pattern",
       [](Json& j) { j["pre_tokenizer"]["pretokenizers"][3].erase("use_regex"); },
       ErrorCode::unsupported, "pretokenizers[3].use_regex"},
      {"decoder",
       [](Json& j) {
         j["decoder"] = {{"type", "Metaspace"}};
       },
       ErrorCode::unsupported, "decoder of type \"Metaspace\""},
      {"post-processor",
       [](Json& j) {
         j["post_processor"] = {{"type", "TemplateProcessing"}};
       },
       ErrorCode::unsupported, "post_processor of type \"TemplateProcessing\""},
      {"truncation",
       [](Json& j) {
         j["truncation"] = {{"max_length", 5}};
       },
       ErrorCode::unsupported, "truncation is set"},
      {"a new section", [](Json& j) { j["mystery"] = 1; }, ErrorCode::unsupported,
       "unknown setting \"mystery\""},
      {"added token that strips", [](Json& j) { j["added_tokens"][1]["lstrip"] = true; },
       ErrorCode::unsupported, "added_tokens[1].lstrip"},
      {"added token of 129 bytes",
       [](Json& j) { j["added_tokens"][1]["content"] = std::string(129, 'x'); },
       ErrorCode::unsupported, "added_tokens[1].content"},
      {"a pattern that other libraries read otherwise",
       [](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\w+"; },
       ErrorCode::unsupported, "uses \\w"},
      {"a pattern of the empty text",
       [](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "a*"; },
       ErrorCode::unsupported, "matches the empty text"},

  }));
  CAPTURE(other.name);
  Json json = test::made_tokenizer();
  other.change(json);
  CHECK_THAT(refusal(json.dump(), other.code), Catch::Contains(other.message));
}

TEST_CASE("a tokenizer that is not JSON is refused with the place", "[cpu][text]") {
  const std::string good = test::made_tokenizer().dump();
  CHECK_THAT(refusal("", ErrorCode::corrupt), Catch::Contains("not valid JSON"));
  CHECK_THAT(refusal(good.substr(0, good.size() / 2), ErrorCode::corrupt),
             Catch::Contains("line 1, column"));
  CHECK_THAT(refusal("[1]", ErrorCode::corrupt), Catch::Contains("not an object"));
  CHECK_THAT(refusal(std::string(1 << 20, '['), ErrorCode::corrupt), Catch::Contains("too deeply"));
  CHECK_THAT(refusal(good + "x", ErrorCode::corrupt), Catch::Contains("not valid JSON"));
  CHECK_THAT(refusal("{\"model\": {\"vocab\": {}, \"vocab\": {}}}", ErrorCode::corrupt),
             Catch::Contains("\"model.vocab\" is given twice"));
}

TEST_CASE("a tokenizer that gives a setting twice is refused by its path", "[cpu][text]") {
  CHECK_THAT(refusal(R"({"version": 1, "version": 2})", ErrorCode::corrupt),
             Catch::Contains("\"version\" is given twice"));
  CHECK_THAT(
      refusal(R"({"added_tokens": [{"id": 1, "id": 2, "content": "x"}]})", ErrorCode::corrupt),
      Catch::Contains("\"id\" is given twice"));
}

TEST_CASE("a tokenizer with a million added tokens is refused at once", "[cpu][text]") {
  std::string json = "{\"added_tokens\": [";
  for (int i = 0; i < 1'000'000; ++i)
    json += fmt::format("{{\"id\":{},\"content\":\"<{}\"}},", i, i);
  json.back() = ']';
  json += '}';
  CHECK_THAT(refusal(json, ErrorCode::unsupported),
             Catch::Contains("added_tokens: more than the 16384 supported"));
}

TEST_CASE("a tokenizer file that is too large or missing is refused unread", "[cpu][text]") {
  const test::TempDir dir;
  const auto load = [](const std::filesystem::path& path) {
    const auto tokenizer = Tokenizer::load(path);
    return tokenizer ? "accepted" : tokenizer.error().message;
  };
  CHECK_THAT(load(dir.path()), Catch::Contains("holds no tokenizer.json"));
  CHECK_THAT(load(dir / "tokenizer.json"), Catch::Contains("tokenizer.json: no such file"));

  test::write_file(dir / "tokenizer.json", "");
  std::filesystem::resize_file(dir / "tokenizer.json", std::uintmax_t{1} << 40);  // sparse
  CHECK_THAT(load(dir.path()), Catch::Contains("tokenizer.json: more than the 16 MiB"));

  test::write_file(dir / "bomb.json.zst", zstd(std::string(kMaxTokenizerBytes + 1, ' ')));
  CHECK_THAT(load(dir / "bomb.json.zst"), Catch::Contains("bomb.json.zst: more than the 16 MiB"));
  const std::string packed = zstd(test::made_tokenizer().dump());
  test::write_file(dir / "cut.zst", packed.substr(0, packed.size() - 3));
  CHECK_THAT(load(dir / "cut.zst"), Catch::Contains("cut.zst: the zstd file is cut short"));
  test::write_file(dir / "plain.zst", test::made_tokenizer().dump());
  CHECK_THAT(load(dir / "plain.zst"), Catch::Contains("plain.zst: not a zstd file"));
  test::write_file(dir / "good.zst", packed);
  CHECK(load(dir / "good.zst") == "accepted");
  std::filesystem::create_directory(dir / "folder.json");
  CHECK_THAT(load(dir / "folder.json"), Catch::Contains("holds no tokenizer.json"));
}

TEST_CASE("refusing a tokenizer takes no memory to speak of", "[cpu][text]") {
  if (test::kSanitized && test::skip("a sanitizer's memory would be measured")) return;
  // Each list by itself, up to the size that a file may have.
  const auto list = [](std::string json, const auto& entry) {
    for (int i = 0; json.size() < kMaxTokenizerBytes - 100; ++i)
      json += entry(i);
    return json;
  };
  const std::string json = GENERATE_COPY(
      list("{\"added_tokens\": [",
           [](int i) { return fmt::format("{{\"id\":{},\"content\":\"<{}\"}},", i, i); }),
      list("{\"model\": {\"vocab\": {",
           [](int i) { return fmt::format("\"a text longer than short {}\":{},", i, i); }),
      list("{\"model\": {\"merges\": [",
           [](int i) { return fmt::format("\"left of the merge {}\",", i); }),
      list("{\"model\": {\"merges\": [",
           [](int i) {
             return fmt::format("[\"left of the merge {}\",\"right of the merge\"],", i);
           }),
      list("{\"model\": {\"merges\": [\"", [](int) { return "\\u00e9"; }),
      list("{\"version\": ", [](int) { return "7"; }));
  const std::size_t grown = test::peak_memory_of([&] {
    if (Tokenizer::parse(json, "tokenizer.json")) throw std::runtime_error("accepted");
  });
  CAPTURE(json.substr(0, 40), grown);
  CHECK(grown < 80'000'000);  // beside the file's text of 16 MiB
}
