#include "runtime/jit/source_bundle.hpp"

#include <catch2/catch.hpp>
#include <filesystem>

#include "runtime/jit/compile_job.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

jit::SourceTree tree_of(std::vector<jit::SourceFile> files) {
  return jit::SourceTree(std::move(files));
}

}  // namespace

TEST_CASE("a bundle holds the template and what it includes, each file once", "[cpu][jit]") {
  const auto tree = tree_of({{"a.cuh", "#include \"common/x.cuh\"\n#  include \"a.args.h\"\n"},
                             {"a.args.h", "#include \"common/x.cuh\"\n"},
                             {"common/x.cuh", "#include \"common/y.cuh\"\n"},
                             {"common/y.cuh", "#include \"common/x.cuh\" // a cycle ends\n"},
                             {"b.cuh", ""}});
  const auto bundle = tree.bundle("a.cuh");
  REQUIRE(bundle);
  CHECK(bundle->main.name == "a.cuh");
  REQUIRE(bundle->headers.size() == 3);
  CHECK(bundle->headers[0].name == "a.args.h");
  CHECK(bundle->headers[1].name == "common/x.cuh");
  CHECK(bundle->headers[2].name == "common/y.cuh");
}

TEST_CASE("a change of an included file changes exactly the bundles that include it",
          "[cpu][jit]") {
  const auto tree = [](const char* shared) {
    return tree_of({{"uses.cuh", "#include \"common/s.cuh\"\n"},
                    {"far.cuh", "#include \"mid.h\"\n"},
                    {"mid.h", "#include \"common/s.cuh\"\n"},
                    {"other.cuh", "#include \"common/t.cuh\"\n"},
                    {"common/s.cuh", shared},
                    {"common/t.cuh", "constexpr int T = 1;\n"}});
  };
  const auto before = tree("constexpr int S = 1;\n");
  const auto after = tree("constexpr int S = 2;\n");
  CHECK(before.bundle("uses.cuh")->digest != after.bundle("uses.cuh")->digest);
  CHECK(before.bundle("far.cuh")->digest != after.bundle("far.cuh")->digest);
  CHECK(before.bundle("other.cuh")->digest == after.bundle("other.cuh")->digest);
}

TEST_CASE("text moved from one file to the next is another bundle", "[cpu][jit]") {
  const auto first = tree_of({{"a.cuh", "#include \"b.h\"\nint x;"}, {"b.h", "int y;"}});
  const auto second = tree_of({{"a.cuh", "#include \"b.h\"\nint x;i"}, {"b.h", "nt y;"}});
  CHECK(first.bundle("a.cuh")->digest != second.bundle("a.cuh")->digest);
}

TEST_CASE("includes in comments do not count, those after joined lines do", "[cpu][jit]") {
  const auto found = jit::includes_of(
      "// #include <x>\n/* #include <y>\n#include <z>\n*/ #include \"a.h\"\n"
      "#inc\\\nlude \"b.h\"\nconst char* s = \"/*\";\nint n = 1'000;\n#include \"c.h\"\n",
      "t.cuh");
  REQUIRE(found);
  CHECK(*found == std::vector<std::string>{"a.h", "b.h", "c.h"});
}

TEST_CASE("a template that reaches outside its tree is refused", "[cpu][jit]") {
  const char* line =
      GENERATE("#include <cuda_fp16.h>", "#include \"/etc/passwd\"", "#include \"../secret.h\"",
               "#include HEADER", "#include_next \"a.h\"", "#embed \"weights.bin\"",
               "#if __has_include(\"x.h\")", "#include \"\"", "#include \"open");
  CAPTURE(line);
  const auto bundle = tree_of({{"a.cuh", std::string(line) + "\n"}}).bundle("a.cuh");
  REQUIRE_FALSE(bundle);
  CHECK(bundle.error().code == ErrorCode::invalid_argument);
  CHECK_THAT(bundle.error().message, Catch::Contains("a.cuh") && Catch::Contains("literal path"));
}

TEST_CASE("a missing template or include is named", "[cpu][jit]") {
  const auto tree = tree_of({{"a.cuh", "#include \"gone.h\"\n"}});
  CHECK(tree.bundle("b.cuh").error().code == ErrorCode::not_found);
  CHECK_THAT(tree.bundle("a.cuh").error().message, Catch::Contains("a.cuh includes \"gone.h\""));
}

TEST_CASE("templates are read from a folder by their path under it", "[cpu][jit]") {
  const test::TempDir folder;
  std::filesystem::create_directories(folder / "common");
  test::write_file(folder / "k.cuh", "#include \"common/x.cuh\"\n");
  test::write_file(folder / "common/x.cuh", "int x;\n");
  test::write_file(folder / "notes.txt", "not a template\n");
  const auto tree = jit::SourceTree::read_directory(folder.path());
  REQUIRE(tree);
  CHECK(tree->names() == std::vector<std::string>{"common/x.cuh", "k.cuh"});
  REQUIRE(tree->bundle("k.cuh"));

  // The same files elsewhere, touched later, are the same code.
  const test::TempDir elsewhere;
  std::filesystem::copy(folder.path(), elsewhere.path(), std::filesystem::copy_options::recursive);
  std::filesystem::last_write_time(elsewhere / "k.cuh", std::filesystem::file_time_type::max());
  const auto copy = jit::SourceTree::read_directory(elsewhere.path());
  REQUIRE(copy);
  CHECK(copy->bundle("k.cuh")->digest == tree->bundle("k.cuh")->digest);
  CHECK(jit::SourceTree::read_directory(folder / "absent").error().code == ErrorCode::not_found);
}

TEST_CASE("a job puts the parameters in front of the template", "[cpu][jit]") {
  const auto tree = tree_of({{"k.cuh", "int line_one;\n"}});
  const jit::CompileJob job = jit::make_job(
      *tree.bundle("k.cuh"),
      {.family = "k", .params = {{"int", "TILE", 64}, {"bool", "HAS_SINK", 1}}}, "sm_80");
  CHECK(
      job.source ==
      "#define INGOT_PARAMS_GENERATED\nconstexpr int TILE = 64;\nconstexpr bool HAS_SINK = true;\n"
      "#line 1 \"k.cuh\"\nint line_one;\n");
  CHECK(job.arch == "sm_80");
}
