#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/run_program.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
namespace fs = std::filesystem;

namespace {

/// A program of tests that does nothing but say that those asked for have passed, but for one that
/// it does not know by its filter.
void write_program(const fs::path& path, const std::string& unknown) {
  std::ofstream(path) << R"(#!/bin/bash
case "$*" in
  *--list-test-names-only*'[alone]') ;;
  *--list-test-names-only*) printf 'plain\none, two\nback\\slash\n' ;;
  *)
    while [ "$1" != -f ]; do shift; done
    while IFS= read -r filter; do
      case $filter in
        plain) name=plain ;; 'one\, two') name='one, two' ;; 'back\\slash') name='back\slash' ;;
        *) continue ;;
      esac
      [ "$name" != ')" << unknown
                      << R"(' ] || continue
      echo "case begins: $name"
      echo "case passed: $name"
    done <"$2"
    echo "suite gpu: 3 passed, 0 failed, 0 skipped" ;;
esac
)";
  fs::permissions(path, fs::perms::owner_all);
}

test::ProgramResult check(const fs::path& program, const fs::path& folder) {
  const char* const source = std::getenv("INGOT_TEST_SOURCE");
  const fs::path root = source != nullptr ? fs::path(source) : fs::current_path();
  test::ProgramOptions options;
  options.program = (root / "tools/gpu_check").string();
  options.environment = {"PATH=/usr/local/bin:/usr/bin:/bin", "INGOT_LIBRARY_PATH=/nonexistent",
                         "TMPDIR=" + folder.string()};
  return test::run_ingot({"--jobs", "2", program.string(), "[made-up]"}, options);
}

}  // namespace

TEST_CASE("gpu_check runs tests whatever is in their names", "[cpu][tools]") {
  const test::TempDir folder;
  write_program(folder / "tests", "");
  const auto ran = check(folder / "tests", folder.path());
  CHECK(ran.out.find("3 passed, 0 failed, 0 skipped") != std::string::npos);
  CHECK(ran.status == 0);
}

TEST_CASE("gpu_check counts a test that did not run as failed", "[cpu][tools]") {
  const test::TempDir folder;
  write_program(folder / "tests", "one, two");
  const auto ran = check(folder / "tests", folder.path());
  CHECK(ran.out.find("FAILED: not taken for a test: one, two") != std::string::npos);
  CHECK(ran.out.find("2 passed, 1 failed, 0 skipped") != std::string::npos);
  CHECK(ran.status == 1);
}
