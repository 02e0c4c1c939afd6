// Texts made to be slow or misread.
#include <time.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "src/text/tokenizer.hpp"
#include "src/text/utf8.hpp"
#include "tests/support/made_tokenizer.hpp"
#include "tests/support/real_tokenizer.hpp"
#include "tests/support/sha256.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/text_corpus.hpp"

using namespace ingot;
using test::made_id;
using test::real_tokenizer;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
constexpr double kSlowerBuild = 20;
#else
constexpr double kSlowerBuild = 1;
#endif

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// CPU seconds of one run that takes less than `limit`, or the fastest of three that do not.
double encode_seconds(std::string_view text, AddedTokens added, double limit) {
  double best = 1e9;
  for (int i = 0; i < 3 && best >= limit; ++i) {
    const double begin = cpu_seconds();
    const std::vector<TokenId> ids = real_tokenizer().encode(text, added);
    best = std::min(best, cpu_seconds() - begin);
  }
  return best;
}

std::string repeated(std::string_view part, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes)
    text += part;
  return text;
}

std::string little_endian(const std::vector<TokenId>& ids) {
  std::string bytes;
  for (const TokenId id : ids) {
    for (int shift = 0; shift < 32; shift += 8)
      bytes += static_cast<char>(id >> shift & 0xFF);
  }
  return bytes;
}

}  // namespace

TEST_CASE("ids of the mixed corpus are those of the tokenizers library", "[cpu][text]") {
  const auto golden =
      nlohmann::json::parse(test::read_file(test::golden_dir() / "text/corpus_ids.json"));
  const std::string corpus = test::text_corpus();
  REQUIRE(corpus.size() == golden["bytes"]);
  REQUIRE(test::sha256(corpus) == golden["sha256"]);
  for (const auto& [name, added] : {std::pair("recognise", AddedTokens::recognise),
                                    std::pair("as_text", AddedTokens::as_text)}) {
    CAPTURE(name);
    const std::vector<TokenId> ids = real_tokenizer().encode(corpus, added);
    CHECK(ids.size() == golden[name]["count"]);
    CHECK(test::sha256(little_endian(ids)) == golden[name]["sha256"]);
  }
}

TEST_CASE("mixed text is encoded at 5 MB/s and more on one core", "[cpu][text]") {
  const std::string corpus = test::text_corpus();
  const double limit = static_cast<double>(corpus.size()) / 5e6 * kSlowerBuild;
  CHECK(encode_seconds(corpus, AddedTokens::recognise, limit) < limit);
}

TEST_CASE("1 MiB of one kind of character is encoded within a second", "[cpu][text]") {
  const std::string part = GENERATE(values<std::string>(
      {"Z", " ", "\n", ".", "7", "深", "\u0301", "a b ", "ab", "\r\n", "<", "<｜", "\xFF",
       "\xE6\xB7", std::string(1, '\0'), " \n", "<think", "🩷", "\u180e "}));
  const std::string text = repeated(part, 1 << 20);
  CAPTURE(part);
  const double limit = 1.0 * kSlowerBuild;
  CHECK(encode_seconds(text, AddedTokens::recognise, limit) < limit);
  CHECK(encode_seconds(text + "x", AddedTokens::as_text, limit) < limit);
  std::string mended;
  CHECK(real_tokenizer().decode(real_tokenizer().encode(text)) == mend_utf8(text, mended));
}

TEST_CASE("added tokens that almost match at every place cost little", "[cpu][text]") {
  auto json = test::made_tokenizer();
  for (int i = 1; i < 100; ++i) {
    json["added_tokens"].push_back({{"id", 1000 + i}, {"content", std::string(128, 'a')}});
    json["added_tokens"]
        .back()["content"]
        .get_ref<std::string&>()[static_cast<std::size_t>(128 - i)] = 'b';
  }
  const Tokenizer tokenizer = value_or_throw(Tokenizer::parse(json.dump(), "made"));
  const std::string text(1 << 18, 'a');
  const double begin = cpu_seconds();
  CHECK(tokenizer.encode(text, AddedTokens::recognise).size() == (1 << 18) / 4);
  CHECK(cpu_seconds() - begin < 2.0 * kSlowerBuild);
}

TEST_CASE("added tokens are cut out leftmost and longest", "[cpu][text]") {
  auto json = test::made_tokenizer();
  int id = 1000;
  for (const char* text : {"<a", "<ab>", "<ab><c", "b>", "c>x"}) {
    json["added_tokens"].push_back({{"id", id++}, {"content", text}});
  }
  const Tokenizer tokenizer = value_or_throw(Tokenizer::parse(json.dump(), "made"));
  const auto ids = [&](std::string_view text) {
    return tokenizer.encode(text, AddedTokens::recognise);
  };
  CHECK(ids("<ab>") == std::vector<TokenId>{1001});
  CHECK(ids("<ab><c") == std::vector<TokenId>{1002});
  CHECK(ids("<ab><<ab") == std::vector<TokenId>{1001, made_id('<'), 1000, made_id('b')});
  CHECK(ids("<a<ab>") == std::vector<TokenId>{1000, 1001});
  CHECK(ids("b>c>x") == std::vector<TokenId>{1003, 1004});
  CHECK(ids("<ab><c>x") ==
        std::vector<TokenId>{1002, made_id('>'), made_id('x')});  // not "<ab>" and "c>x"
}

TEST_CASE("a pattern that backtracks without bound gives up with a message", "[cpu][text]") {
  auto json = test::made_tokenizer();
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(?:a|aa)+[bc]";
  const Tokenizer tokenizer = value_or_throw(Tokenizer::parse(json.dump(), "made"));
  CHECK_THROWS_WITH(tokenizer.encode(std::string(2000, 'a')), Catch::Contains("gave up"));
}

TEST_CASE("invalid UTF-8 is encoded as one U+FFFD for each maximal part", "[cpu][text]") {
  // Source: the Unicode standard, table 3-8 and 3-11; Python's errors='replace'.
  const auto [bytes, mended] = GENERATE(table<std::string, std::string>({
      {"\xF1\x80\x80\xE1\x80\xC2 b\x80 c\x80\xBF d", "\uFFFD\uFFFD\uFFFD b\uFFFD c\uFFFD\uFFFD d"},
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82 A", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD A"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF A", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD A"},
      {"\xF4\x91\x92\x93\xFF A\x80\xBF B", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD A\uFFFD\uFFFD B"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF A", "\uFFFD\uFFFD\uFFFD\uFFFD A"},
      {"\xE6\xB7", "\uFFFD"},
      {"12345678\xFF", "12345678\uFFFD"},
  }));
  CAPTURE(mended);
  std::string storage;
  CHECK(mend_utf8(bytes, storage) == mended);
  CHECK(real_tokenizer().encode(bytes) == real_tokenizer().encode(mended));
  for (std::size_t first = 0; first <= bytes.size(); ++first) {
    for (std::size_t second = first; second <= bytes.size(); ++second) {
      Utf8Stream stream;
      std::string joined = stream.push(bytes.substr(0, first));
      joined += stream.push(bytes.substr(first, second - first));
      joined += stream.push(bytes.substr(second));
      joined += stream.finish();
      REQUIRE(joined == mended);
    }
  }
}

TEST_CASE("a stream of tokens decodes to the same text as all of them at once", "[cpu][text]") {
  const std::string corpus = test::text_corpus().substr(0, 100'000);
  std::string mended;
  Utf8Stream stream;
  std::string joined;
  for (const TokenId id : real_tokenizer().encode(corpus)) {
    const std::string piece = stream.push(real_tokenizer().bytes(id));
    if (!is_utf8(piece)) FAIL("a piece is not UTF-8");
    joined += piece;
  }
  joined += stream.finish();
  CHECK(is_utf8(joined));
  CHECK(joined == mend_utf8(corpus, mended));
}

TEST_CASE("a stream of bytes becomes the same UTF-8 for every two cuts", "[cpu][text]") {
  const std::string text = GENERATE(
      values<std::string>({"aé深😀", "\xF0\x9F\x98\x80\xF0\x9F\x98", "\xED\xA0\x80\xC0\xAF",
                           "\xFF\xC3z\xE6\xB7\xB7\xE6\xB7", "\xF4\x90\x80\x80\xF0\x80\x80\xE0\x9F",
                           std::string("\0\xC3\0\xA9\xC3", 5)}));
  CAPTURE(text);
  std::string mended;
  const std::string whole(mend_utf8(text, mended));
  for (std::size_t first = 0; first <= text.size(); ++first) {
    for (std::size_t second = first; second <= text.size(); ++second) {
      Utf8Stream stream;
      std::string joined = stream.push(text.substr(0, first));
      joined += stream.push(text.substr(first, second - first));
      joined += stream.push(text.substr(second));
      CHECK(is_utf8(joined));
      joined += stream.finish();
      CHECK(joined == whole);
    }
  }
}
