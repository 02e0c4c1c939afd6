#include "tuner/tuning_key.hpp"

#include <catch2/catch.hpp>

#include "tests/tuner/tuning_fixture.hpp"

using namespace ingot;
using test::tuning_key;
using test::tuning_request;

TEST_CASE("a tuning key prints readably and is read back", "[cpu][tuner]") {
  const TuningKey key = tuning_key();
  const std::string text = key.text();
  CHECK_THAT(text, Catch::StartsWith("schema 1\nfamily mma "));
  CHECK_THAT(text, Catch::Contains("\nproblem rows 1\nproblem cols 4096\ntp 1\n"
                                   "device NVIDIA H200\narch sm_90a\nmultiprocessors 132\n"
                                   "driver 580\ncompiler 13.0\ncompiler-build fake\nspace "));
  CHECK_THAT(text, Catch::EndsWith("\npolicy as made up\n"));
  const auto read = TuningKey::parse(text);
  REQUIRE(read);
  CHECK(*read == key);
  CHECK(read->key() == key.key());
  CHECK(key.title() == "mma+simt rows=1 cols=4096 on NVIDIA H200, TP 1");
}

TEST_CASE("a tuning key changes with every field, and differences names it", "[cpu][tuner]") {
  const TuningKey key = tuning_key();
  const auto check = [&](const TuningKey& other, const std::string& field) {
    CAPTURE(field);
    const bool of_compiler = field.starts_with("compiler");
    CHECK((other.key() == key.key()) == of_compiler);
    CHECK((other.compiler_key() == key.compiler_key()) != of_compiler);
    const auto found = differences(key, other);
    REQUIRE(found.size() == 1);
    CHECK_THAT(found[0], Catch::StartsWith(field));
  };
  CHECK(differences(key, key).empty());
  TuningKey other = key;
  other.schema = 2;
  check(other, "schema: wanted 1, the record has 2");
  other = key;
  other.families[1].source_digest = "0";
  check(other, "template of simt");
  other = key;
  other.families.pop_back();
  check(other, "families: wanted mma+simt, the record has mma");
  other = key;
  other.problem[0].value = 2;
  check(other, "problem: wanted rows=1 cols=4096, the record has rows=2 cols=4096");
  other = key;
  other.tp_size = 8;
  check(other, "TP size");
  other = key;
  other.device.name = "NVIDIA H100";
  check(other, "device: wanted NVIDIA H200, the record has NVIDIA H100");
  other = key;
  other.device.arch = "sm_100a";
  check(other, "arch");
  other = key;
  other.device.sm_count = 114;
  check(other, "multiprocessors");
  other = key;
  other.device.driver_branch = "unknown";
  check(other, "driver: wanted 580, the record has unknown");
  other = key;
  other.compiler.version = "12.9";
  check(other, "compiler (NVRTC version)");
  other = key;
  other.compiler.build = "other";
  check(other, "compiler-build");
  other = key;
  other.space_digest = "0";
  check(other, "space");
  other = key;
  other.policy = "twice";
  check(other, "policy");
}

TEST_CASE("a key follows the templates, the space and the compiler of its kernels",
          "[cpu][tuner]") {
  const TuningKey key = tuning_key();
  const auto with = [&](const TuningRequest& request, const std::string& text,
                        const jit::CompilerIdentity& identity) {
    const auto kernels =
        test::tuning_kernels({}, std::make_shared<test::FakeCompiler>(identity), text);
    return value_or_throw(key_of(request, test::tuning_device(), 1, "as made up", *kernels));
  };
  CHECK(with(tuning_request(), "int kernel;\n", {"13.0", "fake"}) == key);
  CHECK(differences(key, with(tuning_request(), "int other;\n", {"13.0", "fake"})).size() == 2);
  CHECK(differences(key, with(tuning_request(), "int kernel;\n", {"13.1", "fake"})).size() == 1);
  TuningRequest wider = tuning_request();
  wider.candidates.push_back(test::tile_variant("simt", 4));
  CHECK_THAT(differences(key, with(wider, "int kernel;\n", {"13.0", "fake"})).at(0),
             Catch::StartsWith("space"));
  CHECK_FALSE(key_of({}, test::tuning_device(), 1, "", *test::tuning_kernels()));
}

TEST_CASE("text that is no key is refused", "[cpu][tuner]") {
  const std::string text = tuning_key().text();
  const auto refused = [](const std::string& bad) {
    const auto key = TuningKey::parse(bad);
    CAPTURE(bad);
    REQUIRE_FALSE(key);
    CHECK(key.error().code == ErrorCode::corrupt);
  };
  refused("");
  refused(text + "more 1\n");
  refused(text.substr(0, text.size() - 1));
  refused("tp 1\n" + text);
  std::string changed = text;
  changed.replace(changed.find("family mma"), 10, "family a/b");
  refused(changed);
  changed = text;
  changed.replace(changed.find("rows 1"), 6, "rows x");
  refused(changed);
  changed = text;
  changed.replace(changed.find("arch sm_90a"), 11, "arch ../sm_");
  refused(changed);
}
