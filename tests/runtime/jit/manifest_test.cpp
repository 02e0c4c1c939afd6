#include "runtime/jit/manifest.hpp"

#include <catch2/catch.hpp>
#include <functional>

#include "tests/runtime/jit/store_fixture.hpp"

using namespace ingot;

namespace {

jit::Manifest sample() {
  return {.family = "rms_norm",
          .arch = "sm_90a",
          .compiler = {"13.0", "65be+08d1"},
          .options = {"-default-device", "--std=c++20"},
          .source_digest = "0123",
          .params = {{"int", "HIDDEN", 4096}, {"bool", "SINK", 0}}};
}

}  // namespace

TEST_CASE("a manifest is readable, one field a line in a fixed order", "[cpu][jit]") {
  CHECK(sample().text() ==
        "schema 1\nfamily rms_norm\narch sm_90a\ncompiler 13.0\ncompiler-build 65be+08d1\n"
        "option -default-device\noption --std=c++20\ntemplate 0123\nparam int HIDDEN 4096\n"
        "param bool SINK 0\n");
  const auto parsed = jit::Manifest::parse(sample().text());
  REQUIRE(parsed);
  CHECK(*parsed == sample());
}

TEST_CASE("a manifest that does not print as it was read is refused", "[cpu][jit]") {
  const std::string text = sample().text();
  const std::string bad =
      GENERATE_COPY(text + "extra field\n", text + "arch sm_80\n", text.substr(0, text.size() - 1),
                    "arch sm_90a\n" + text, text + "param int X\n", text + "param int X 1z\n",
                    std::string(), std::string("schema one\n"));
  CAPTURE(bad);
  const auto parsed = jit::Manifest::parse(bad);
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().code == ErrorCode::corrupt);
}

TEST_CASE("a cubin key changes with every field of the manifest, the compiler's apart",
          "[cpu][jit]") {
  using Change = std::function<void(jit::Manifest&)>;
  const std::vector<std::pair<std::string, Change>> kernel_changes{
      {"schema", [](auto& m) { m.schema = 2; }},
      {"family", [](auto& m) { m.family = "rms_norn"; }},
      {"arch", [](auto& m) { m.arch = "sm_100a"; }},
      {"options", [](auto& m) { m.options.push_back("--use_fast_math"); }},
      {"option order", [](auto& m) { std::swap(m.options[0], m.options[1]); }},
      {"template", [](auto& m) { m.source_digest = "0124"; }},
      {"param value", [](auto& m) { m.params[0].value = 4097; }},
      {"param name", [](auto& m) { m.params[0].name = "HIDDEM"; }},
      {"param type", [](auto& m) { m.params[1].type = "int"; }},
      {"param missing", [](auto& m) { m.params.pop_back(); }},
  };
  for (const auto& [name, change] : kernel_changes) {
    CAPTURE(name);
    jit::Manifest changed = sample();
    change(changed);
    CHECK(changed.kernel_key() != sample().kernel_key());
    CHECK(changed.compiler_key() == sample().compiler_key());
    const std::size_t sentences = name == "param name" ? 2 : 1;  // one is gone, one is new
    CHECK(jit::differences(sample(), changed).size() == sentences);
  }
  for (const bool version : {false, true}) {
    jit::Manifest changed = sample();
    (version ? changed.compiler.version : changed.compiler.build) = "13.1";
    CHECK(changed.kernel_key() == sample().kernel_key());
    CHECK(changed.compiler_key() != sample().compiler_key());
  }
}

TEST_CASE("differences name the field and both values", "[cpu][jit]") {
  jit::Manifest entry = sample();
  entry.params[0].value = 512;
  entry.compiler.version = "12.9";
  CHECK(jit::differences(sample(), entry) ==
        std::vector<std::string>{"compiler (NVRTC version): wanted 13.0, the entry has 12.9",
                                 "param HIDDEN: wanted 4096, the entry has 512"});
  CHECK(jit::differences(sample(), sample()).empty());
}
