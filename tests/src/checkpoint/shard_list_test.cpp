#include "src/checkpoint/shard_list.hpp"

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

std::string refusal(const std::string& json) {
  Problems problems;
  CHECK(!parse_shard_index(json, "index.json", problems));
  REQUIRE(!problems.empty());
  CHECK(problems.list()[0].text.find("index.json") != std::string::npos);
  return problems.to_error("x").message;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> list_problems(const std::filesystem::path& directory,
                                       std::size_t& shards) {
  Problems problems;
  shards = list_shards(directory, problems).files.size();
  std::vector<std::string> texts;
  for (const Problem& problem : problems.list())
    texts.push_back(problem.text);
  return texts;
}

}  // namespace

TEST_CASE("an index maps tensors to shards", "[cpu][checkpoint]") {
  Problems problems;
  const auto index = parse_shard_index(
      R"({"metadata":{"total_size":5},"weight_map":{"a":"x.safetensors","b":"y.safetensors"}})",
      "index.json", problems);
  REQUIRE(problems.empty());
  CHECK(index->shard_of.at("a") == "x.safetensors");
  CHECK(index->shard_of.at("b") == "y.safetensors");
}

TEST_CASE("index path that leaves the folder", "[cpu][checkpoint]") {
  const char* path = GENERATE("../x.safetensors", "/etc/x.safetensors", "sub/x.safetensors",
                              "./x.safetensors", "..", ".safetensors", "", "x.bin",
                              "x.safetensors/", ".hidden.safetensors", "x\\u0000.safetensors");
  CAPTURE(path);
  const std::string message = refusal(std::string(R"({"weight_map":{"a":")") + path + "\"}}");
  CHECK(contains(message, "plain file name"));
}

TEST_CASE("index that is no index", "[cpu][checkpoint]") {
  const char* json =
      GENERATE("", "{", "[]", "7", "null", "{}", R"({"weight_map":7})", R"({"weight_map":[]})",
               R"({"weight_map":{"a":7}})", R"({"weight_map":{"a":null}})",
               R"({"weight_map":{},"weight_map":{}})",
               R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})");
  CAPTURE(json);
  CHECK(contains(refusal(json), "fetch the index again"));
}

TEST_CASE("index of more values than any model has", "[cpu][checkpoint]") {
  std::string values = "[";
  for (int i = 0; i < 500'000; ++i)
    values += "[],";
  CHECK(contains(refusal(values + "[]]"), "more than 400000 values"));
  CHECK(contains(refusal("\"" + std::string(2'000'000, 'x') + "\""),
                 "a text of more than 1048576 bytes"));
}

TEST_CASE("all missing shards are listed by their numbers", "[cpu][checkpoint]") {
  const test::TempDir dir;
  for (const char* name :
       {"model-00002-of-00005.safetensors", "model-00004-of-00005.safetensors"}) {
    test::write_file(dir / name, "");
  }
  std::size_t shards = 0;
  const auto problems = list_problems(dir.path(), shards);
  CHECK(shards == 2);
  REQUIRE(problems.size() == 3);
  CHECK(contains(problems[0], "model-00001-of-00005.safetensors is missing"));
  CHECK(contains(problems[1], "model-00003-of-00005.safetensors is missing"));
  CHECK(contains(problems[2], "model-00005-of-00005.safetensors is missing"));
}

TEST_CASE("names that only look numbered are taken as they are", "[cpu][checkpoint]") {
  const test::TempDir dir;
  for (const char* name :
       {"-0000x-of-00005.safetensors", "model-00000-of-00005.safetensors", "m.safetensors"}) {
    test::write_file(dir / name, "");
  }
  std::size_t shards = 0;
  CHECK(list_problems(dir.path(), shards).empty());
  CHECK(shards == 3);
}

TEST_CASE("all missing shards are listed by the index", "[cpu][checkpoint]") {
  const test::TempDir dir;
  test::write_file(dir / "a.safetensors", "");
  test::write_file(
      dir / "model.safetensors.index.json",
      R"({"weight_map":{"1":"a.safetensors","2":"b.safetensors","3":"c.safetensors"}})");
  std::size_t shards = 0;
  const auto problems = list_problems(dir.path(), shards);
  REQUIRE(problems.size() == 2);
  CHECK(contains(problems[0], (dir / "b.safetensors").string() + " is missing"));
  CHECK(contains(problems[1], (dir / "c.safetensors").string() + " is missing"));
}

TEST_CASE("shard not in the index", "[cpu][checkpoint]") {
  const test::TempDir dir;
  test::write_file(dir / "a.safetensors", "");
  test::write_file(dir / "stray.safetensors", "");
  test::write_file(dir / "model.safetensors.index.json", R"({"weight_map":{"1":"a.safetensors"}})");
  std::size_t shards = 0;
  const auto problems = list_problems(dir.path(), shards);
  REQUIRE(problems.size() == 1);
  CHECK(contains(problems[0], "stray.safetensors is not in model.safetensors.index.json"));
}

TEST_CASE("a folder without shards", "[cpu][checkpoint]") {
  const test::TempDir dir;
  std::size_t shards = 0;
  const auto problems = list_problems(dir.path(), shards);
  REQUIRE(problems.size() == 1);
  CHECK(contains(problems[0], "holds no *.safetensors"));
}
