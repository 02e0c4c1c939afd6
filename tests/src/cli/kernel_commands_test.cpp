// prewarm and cache, as the built program runs them, with a stand-in for NVRTC.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/cli/device.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot::test;

namespace {

std::filesystem::path program() {
  const char* given = std::getenv("INGOT_TEST_PROGRAM");
  return std::filesystem::absolute(given != nullptr ? given : "build/ingot");
}

std::filesystem::path source_tree() {
  return std::filesystem::absolute(golden_dir()).parent_path().parent_path();
}

/// Runs ingot with the stand-in as its NVRTC and `cache_home` for its caches.
ProgramResult run(std::vector<std::string> arguments, const std::filesystem::path& cache_home) {
  const auto fake = program().parent_path() / "tests/fake_nvrtc";
  REQUIRE(std::filesystem::exists(fake / "libnvrtc.so.13"));
  ProgramOptions options;
  options.environment = {"TERM=dumb", "HOME=/nonexistent", "XDG_CACHE_HOME=" + cache_home.string(),
                         "INGOT_LIBRARY_PATH=" + fake.string()};
  return run_ingot(arguments, options);
}

std::vector<std::string> prewarm(std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{
      "prewarm", "--config", (source_tree() / "configs/deepseek-v4-flash/config.json").string(),
      "--jobs", "2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    lines.push_back(nlohmann::json::parse(line));
  return lines;
}

/// A copy of the templates in which expert_sum ends with `line`.
std::filesystem::path templates_with(const TempDir& folder, const std::string& line) {
  const auto copy = folder / "templates";
  std::filesystem::copy(source_tree() / "kernel_templates", copy,
                        std::filesystem::copy_options::recursive);
  write_file(copy / "expert_sum.cuh", read_file(copy / "expert_sum.cuh") + line + "\n");
  return copy;
}

}  // namespace

TEST_CASE("prewarm compiles without a GPU, and a second run compiles nothing and says so",
          "[cpu][cli][cache]") {
  const TempDir home;
  const auto dry = run(prewarm({"--arch", "sm_90a,sm_80", "--dry-run"}), home.path());
  CHECK(dry.status == 0);
  CHECK_THAT(dry.out, Catch::StartsWith("would compile "));
  const auto first = run(prewarm({"--arch", "sm_90a,sm_80", "--json"}), home.path());
  CAPTURE(first.err);
  REQUIRE(first.status == 0);
  const auto lines = json_lines(first.out);
  REQUIRE(lines.size() >= 2);
  const auto& summary = lines.back();
  CHECK(summary["compiled"] == summary["kernels"]);
  CHECK(summary["compiled"] == lines.size() - 1);
  CHECK(summary["found"] == 0);
  CHECK(summary["failed"] == 0);
  CHECK(summary["archs"] == nlohmann::json({"sm_80", "sm_90a"}));
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
    CHECK(lines[i]["registers"] == 32);
    CHECK(lines[i].contains("compile_seconds"));
  }
  CHECK(first.err.empty());

  const auto second = run(prewarm({"--arch", "sm_90a,sm_80"}), home.path());
  CHECK(second.status == 0);
  CHECK_THAT(second.out, Catch::StartsWith("nothing to compile: all "));
  CHECK_THAT(run(prewarm({"--arch", "sm_90a", "--dry-run"}), home.path()).out,
             Catch::StartsWith("would compile 0 of "));
}

TEST_CASE("a compiler that crashes on one variant is told by the exit status, the others are there",
          "[cpu][cli][cache]") {
  const TempDir home;
  const TempDir folder;
  const bool crash = GENERATE(true, false);
  const auto templates =
      templates_with(folder, crash ? "// fake: crash when constexpr int VECTOR = 8;"
                                   : "// fake: refuse when constexpr int VECTOR = 8;");
  const auto arguments =
      prewarm({"--arch", "sm_90a", "--json", "--template-dir", templates.string()});
  const auto first = run(arguments, home.path());
  CAPTURE(first.err, first.out);
  CHECK(first.status == 1);
  CHECK_THAT(first.err, Catch::Contains("VECTOR=8") &&
                            Catch::Contains(crash ? "crashed: signal 11" : "error: refused"));
  CHECK(std::count(first.err.begin(), first.err.end(), '\n') == 1);
  const auto lines = json_lines(first.out);
  CHECK(lines.back()["failed"] == 1);
  CHECK(lines.size() - 1 == lines.back()["kernels"].get<std::size_t>() - 1);

  // It is barred: the next run does not try it again, and still tells.
  const auto second = run(arguments, home.path());
  CHECK(second.status == 1);
  CHECK_THAT(second.err, Catch::Contains("is barred"));
  CHECK(json_lines(second.out).back()["compiled"] == 0);
  // With the template changed it is tried again.
  const auto mended = run(prewarm({"--arch", "sm_90a", "--json"}), home.path());
  CHECK(mended.status == 0);
}

TEST_CASE("an NVRTC that is too old for the architecture is named", "[cpu][cli][cache]") {
  const TempDir home;
  const auto result = run(prewarm({"--arch", "sm_120a"}), home.path());
  CHECK(result.status == 1);
  CHECK_THAT(result.err, Catch::Contains("NVRTC 13.0") &&
                             Catch::Contains("does not know this architecture; it knows 80, 90"));
}

TEST_CASE("prewarm refuses what cannot be, by name", "[cpu][cli][cache]") {
  const TempDir home;
  const auto refused = [&](std::vector<std::string> more, const std::string& word) {
    const auto result = run(prewarm(std::move(more)), home.path());
    CAPTURE(result.err);
    CHECK(result.status == 2);
    CHECK(result.err.find(word) != std::string::npos);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    CHECK(result.out.empty());
  };
  refused({"--arch", "sm_90x"}, "\"sm_90x\" is no architecture");
  refused({"--arch", "sm_90a", "--tp", "3"}, "valid TP sizes: 1, 2, 4, 8");
  refused({"--arch", "sm_90a", "--batch", "1,,2"}, "--batch");
  refused({"--arch", "sm_90a", "--jobs", "0"}, "--jobs");
  refused({"--arch", "sm_75"}, "no kernel family runs on sm_75");
  refused({"--arch", "sm_90a", "--model", "x"}, "--model");
  refused({"--arch", "sm_90a", "--template-dir", "/absent"}, "/absent");
}

TEST_CASE("without a place for caches prewarm compiles, and warns once", "[cpu][cli][cache]") {
  const auto fake = program().parent_path() / "tests/fake_nvrtc";
  ProgramOptions options;
  options.environment = {"INGOT_LIBRARY_PATH=" + fake.string()};
  const auto result = run_ingot(prewarm({"--arch", "sm_90a"}), options);
  CHECK(result.status == 0);
  CHECK_THAT(result.err, Catch::StartsWith("ingot: warning: there is no kernel cache folder"));
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
}

TEST_CASE("the cache is listed, verified, explained, carried and collected", "[cpu][cli][cache]") {
  const TempDir home;
  REQUIRE(run(prewarm({"--arch", "sm_90a,sm_80"}), home.path()).status == 0);
  const auto listed = run({"cache", "list", "--arch", "sm_80", "--json"}, home.path());
  const auto lines = json_lines(listed.out);
  REQUIRE_FALSE(lines.empty());
  for (const auto& line : lines)
    CHECK(line["arch"] == "sm_80");
  CHECK(lines[0]["nvrtc"] == "13.0");
  CHECK(std::any_of(lines.begin(), lines.end(), [](const auto& line) {
    return line["family"] == "expert_sum" && line["params"].contains("VECTOR");
  }));
  const std::size_t all = json_lines(run({"cache", "list", "--json"}, home.path()).out).size();
  CHECK(all > lines.size());

  CHECK_THAT(
      run({"cache", "explain", "expert_sum", "VECTOR=4", "--arch", "sm_90a"}, home.path()).out,
      Catch::Contains("hit: "));
  const auto miss =
      run({"cache", "explain", "expert_sum", "THREADS=128", "VECTOR=8", "--arch", "sm_90a"},
          home.path());
  CHECK(miss.status == 0);
  CHECK_THAT(miss.out, Catch::Contains("param THREADS: wanted 128, the entry has 256"));
  CHECK(
      run({"cache", "explain", "expert_sum", "WIDTH=5", "--arch", "sm_90a"}, home.path()).status ==
      2);
  CHECK(run({"cache", "explain", "absent", "--arch", "sm_90a"}, home.path()).status == 2);

  const TempDir elsewhere;
  const auto bundle = (elsewhere / "kernels.bundle").string();
  CHECK(run({"cache", "export", bundle}, home.path()).status == 0);
  CHECK(run({"cache", "import", bundle}, elsewhere / "home").status == 0);
  CHECK(run({"cache", "verify"}, elsewhere / "home").status == 0);
  CHECK_THAT(run(prewarm({"--arch", "sm_90a,sm_80", "--frozen"}), elsewhere / "home").out,
             Catch::StartsWith("nothing to compile"));

  write_file(lines[0]["file"].get<std::string>(), "damaged");
  const auto verified = run({"cache", "verify", "--json"}, home.path());
  CHECK(verified.status == 1);
  CHECK(json_lines(verified.out).at(0)["damaged"].size() == 1);
  const auto collected = run({"cache", "gc", "--json"}, home.path());
  CHECK(json_lines(collected.out).at(0)["damaged"] == 1);
  CHECK(run({"cache", "verify"}, home.path()).status == 0);
  CHECK(json_lines(run({"cache", "gc", "--max-size", "0", "--json"}, home.path()).out)
            .at(0)["kept"] == 0);

  write_file(bundle, read_file(bundle).substr(0, 100));
  const auto cut = run({"cache", "import", bundle}, elsewhere / "other");
  CHECK(cut.status == 2);
  CHECK_THAT(cut.err, Catch::Contains(bundle));
}

TEST_CASE("bench says on a machine without a GPU that it needs one", "[cpu][cli]") {
  if (ingot::usable_gpu({0}, {}) && skip("this machine has a GPU")) return;
  const TempDir home;
  const auto config = (source_tree() / "configs/deepseek-v4-flash/config.json").string();
  const auto result = run({"bench", "decode", "--synthetic", "--config", config}, home.path());
  CHECK(result.status == 2);
  CHECK(result.out.empty());
  CHECK_THAT(result.err, Catch::Contains("bench measures on a GPU: ") &&
                             Catch::Contains("`ingot doctor` shows more"));
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
}
