#include "src/cli/score_vectors.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/support/fake_engine.hpp"
#include "tests/support/small_tokenizer.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using namespace ingot::test;
using nlohmann::json;

namespace {

json token(const std::string& text, double logprob) {
  json bytes = json::array();
  for (const char c : text)
    bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", {{"text", text}, {"bytes", bytes}}}, {"logprob", logprob}};
}

/// A folder of one vector in the captured format: these tokens, each certain.
void write_vectors(const TempDir& folder, const std::vector<std::string>& tokens,
                   int prompt_tokens) {
  json steps = json::array();
  for (const std::string& text : tokens) {
    json step = token(text, 0.0);
    step["top_logprobs"] = {token(text, 0.0), token("x", -9999.0)};
    steps.push_back(step);
  }
  const json official{{"request",
                       {{"messages", {{{"role", "user"}, {"content", "hi"}}}},
                        {"thinking", {{"type", "disabled"}}}}},
                      {"usage", {{"prompt_tokens", prompt_tokens}}},
                      {"steps", steps}};
  write_file(folder / "one.official.json", official.dump());
  write_file(folder / "manifest.json",
             R"({"prompts": [{"id": "one", "official_file": "official/one.official.json"}]})");
}

struct Compared {
  int status;
  json report;
};

Compared compare(FakeEngine& engine, const TempDir& folder) {
  const auto vectors =
      value_or_throw(read_vectors(folder.path(), small_tokenizer(), EffortTable::april,
                                  engine.config().vocab_size, engine.max_context()));
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* out = ::open_memstream(&text, &size);
  const int status = score_vectors(engine, small_tokenizer(), vectors, true, out);
  std::fclose(out);
  const Compared compared{status, json::parse(std::string(text, size))};
  std::free(text);
  return compared;
}

}  // namespace

TEST_CASE("vectors that the engine repeats agree, with the difference of log-probabilities",
          "[cpu][cli]") {
  const TempDir folder;
  FakeEngine engine;
  engine.set_logits(scripted_text("the a"));
  write_vectors(folder, {"the", " ", "a"}, 6);
  const Compared compared = compare(engine, folder);
  CHECK(compared.status == 0);
  CHECK(compared.report["all_agree"] == true);
  const json& vector = compared.report["vectors"][0];
  CHECK(vector["greedy_agree"] == 3);
  CHECK(vector["steps"] == 3);
  CHECK(vector["same_prompt_tokens"] == true);
  CHECK(vector["max_logprob_difference"].get<double>() == Approx(0).margin(1e-9));
}

TEST_CASE("vectors that the engine does not repeat are counted, later steps on the API's tokens",
          "[cpu][cli]") {
  const TempDir folder;
  FakeEngine engine;
  engine.set_logits(scripted_text("the a"));
  write_vectors(folder, {"the", "b", "a"}, 7);
  const Compared compared = compare(engine, folder);
  CHECK(compared.status == 1);
  const json& vector = compared.report["vectors"][0];
  CHECK(vector["greedy_agree"] == 2);
  CHECK(vector["same_prompt_tokens"] == false);
  CHECK(vector["max_logprob_difference"].get<double>() == Approx(100).epsilon(0.1));
}

TEST_CASE("vectors that are nested without end are refused by name", "[cpu][cli]") {
  const TempDir folder;
  FakeEngine engine;
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  write_vectors(folder, {"the"}, 6);
  write_file(folder / "one.official.json", R"({"request": {"messages": )" + deep + "}}");
  CHECK_THROWS_WITH(compare(engine, folder),
                    Catch::Contains("one.official.json") && Catch::Contains("nested deeper"));
  write_file(folder / "manifest.json", R"({"prompts": )" + deep + "}");
  CHECK_THROWS_WITH(compare(engine, folder),
                    Catch::Contains("manifest.json") && Catch::Contains("nested deeper"));
}

TEST_CASE("broken vectors are refused by name", "[cpu][cli]") {
  const TempDir folder;
  FakeEngine engine;
  CHECK_THROWS_WITH(compare(engine, folder), Catch::Contains("manifest.json"));
  write_file(folder / "manifest.json", "{}");
  CHECK_THROWS_WITH(compare(engine, folder), Catch::Contains("manifest.json"));
  write_vectors(folder, {"the"}, 6);
  write_file(folder / "one.official.json", "[");
  CHECK_THROWS_WITH(compare(engine, folder), Catch::Contains("one.official.json"));
  write_file(folder / "one.official.json", "{}");
  CHECK_THROWS_WITH(compare(engine, folder), Catch::Contains("one.official.json") &&
                                                 Catch::Contains("capture them again") &&
                                                 !Catch::Contains("json.exception"));
  write_file(folder / "manifest.json", R"({"prompts": []})");
  CHECK_THROWS_WITH(compare(engine, folder), Catch::Contains("names no prompts"));
  write_vectors(folder, {}, 6);
  CHECK_THROWS_WITH(compare(engine, folder), Catch::Contains("holds no steps"));
  write_vectors(folder, {"the"}, 6);
  engine.set_max_context(3);
  CHECK_THROWS_WITH(compare(engine, folder), Catch::Contains("--context"));
  engine.set_max_context(100);
  write_vectors(folder, {"no such token"}, 6);
  CHECK_THROWS_WITH(compare(engine, folder), Catch::Contains("no such token"));
}
