#include "src/batch/line_template.hpp"

#include <catch2/catch.hpp>

#include "src/batch/batch_request.hpp"
#include "src/batch/id_set.hpp"

using namespace ingot;

namespace {

LineTemplate made(std::string_view json) {
  return value_or_throw(LineTemplate::parse(json, "t.json"));
}

std::string filled(const LineTemplate& line_template, std::string_view line) {
  return to_python_json(
      value_or_throw(line_template.fill(value_or_throw(parse_json(line, "line")))));
}

}  // namespace

TEST_CASE("the holes of a template are filled with the fields of a line", "[cpu][batch]") {
  const LineTemplate line_template =
      made(R"([{"role": "user", "content": "{{a}}, {{ b.c }}: {{n}} {{x y}} {{}} {{{a}}}"}])");
  CHECK(
      filled(line_template, R"({"a": "say \"hi\"\n{{n}}", "b": {"c": [1, "z"]}, "n": 7})") ==
      R"({"messages": [{"role": "user", "content": "say \"hi\"\n{{n}}, [1, \"z\"]: 7 {{x y}} {{}} )"
      R"({say \"hi\"\n{{n}}}"}]})");
}

TEST_CASE("a field that a line lacks is named", "[cpu][batch]") {
  const LineTemplate line_template = made(R"({"messages": [{"content": "{{a.b}}"}], "seed": 1})");
  const auto refused = line_template.fill(value_or_throw(parse_json(R"({"a": "x"})", "line")));
  REQUIRE(!refused);
  CHECK(refused.error().message.find("\"a.b\"") != std::string::npos);
  CHECK(filled(line_template, R"({"a.b": null})") ==
        R"({"messages": [{"content": "null"}], "seed": 1})");
}

TEST_CASE("a line that fills a template with more than 16 MiB is refused", "[cpu][batch]") {
  const std::string part(std::size_t{1} << 20, 'x');
  const auto request = [&](int holes, std::string_view hole) {
    std::string content;
    for (int i = 0; i < holes; ++i)
      content += hole;
    InputLine line;
    line.number = 4;
    line.text = R"({"a": ")" + part + R"(", "list": [")" + part + R"("], "custom_id": "c"})";
    return parse_template_line(std::move(line), {},
                               made(R"([{"role": "user", "content": ")" + content + R"("}])"));
  };
  CHECK(request(15, "{{a}}"));
  for (const char* hole : {"{{a}}", "{{list}}", "{{a}}{{a}}{{a}}{{a}}"}) {
    const auto refused = request(1000, hole);
    REQUIRE(!refused);
    CHECK(refused.error().custom_id == "c");
    CHECK(refused.error().message ==
          "the line fills the template with more than 16 MiB; shorten its fields");
  }
}

TEST_CASE("what is no template is refused", "[cpu][batch]") {
  for (const char* json : {"", "{}", "7", R"({"messages": 7})", R"([{"content": "no hole"}])"})
    CHECK(!LineTemplate::parse(json, "t.json"));
}

TEST_CASE("a template that is no body, has no field or an open one is refused with what to write",
          "[cpu][batch]") {
  const auto [json, word] = GENERATE(table<const char*, const char*>({
      {"[1, 2]", "give an object with `messages`"},
      {R"(["{{a}}"])", "give an object with `messages`"},
      {R"({"prompt": "{{a}}"})", "give an object with `messages`"},
      {R"([{"content": "no hole"}])", "put one where a line's field belongs"},
      {R"([{"content": "Translate: {{text"}])", "{{ in \"Translate: {{text\" is not closed"},
      {R"([{"content": "{{a}} and {{b"}])", "write {{field}}"},
      {R"([{"content": "{{a}}")", "correct the file"},
  }));
  CAPTURE(json);
  const auto refused = LineTemplate::parse(json, "t.json");
  REQUIRE(!refused);
  CAPTURE(refused.error().message);
  CHECK(refused.error().message.starts_with("reading template t.json"));
  CHECK(refused.error().message.find(word) != std::string::npos);
  CHECK(LineTemplate::parse(R"([{"content": "{{a}} {{x y}} {{}} {{{a}}}"}])", "t.json"));
}

TEST_CASE("a line of fields becomes a request with an id of its own", "[cpu][batch]") {
  const LineTemplate line_template =
      made(R"({"messages": [{"role": "user", "content": "Translate: {{text}}"}], "top_p": 0.5})");
  const auto request = [&](std::string text) {
    InputLine line;
    line.number = 9;
    line.text = std::move(text);
    return parse_template_line(std::move(line), {}, line_template);
  };
  const auto one = request(R"({"text": "Haus", "id": 17})");
  REQUIRE(one);
  CHECK(one->messages.at(0).content == "Translate: Haus");
  CHECK(one->sampling.top_p == 0.5);
  CHECK(one->custom_id == "17");
  CHECK(request(R"({"text": "x", "custom_id": "c", "id": "d"})")->custom_id == "c");
  CHECK(request(R"({"text": "x"})")->custom_id == "line-9");
  CHECK(request(R"({"txt": "x", "id": "d"})").error().custom_id == "d");
  CHECK(request("[]").error().code == "invalid_request");
  CHECK(request("{").error().code == "invalid_json");
}

TEST_CASE("a set of ids knows what it was given and nothing else", "[cpu][batch]") {
  IdSet ids;
  CHECK(!ids.contains("a"));
  for (int i = 0; i < 5000; ++i)
    REQUIRE(ids.insert("id-" + std::to_string(i), i % 3));
  CHECK(ids.size() == 5000);
  for (int i = 0; i < 5000; ++i) {
    REQUIRE(!ids.insert("id-" + std::to_string(i), i % 3));
    REQUIRE(ids.contains("id-" + std::to_string(i), i % 3));
    REQUIRE(!ids.contains("id-" + std::to_string(i), 3));
  }
  CHECK(!ids.contains(""));
}
