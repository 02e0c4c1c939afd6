#include "runtime/jit/nvrtc_compiler.hpp"

#include <catch2/catch.hpp>
#include <filesystem>

#include "runtime/jit/arch.hpp"
#include "tests/gpu/smoke_kernels.hpp"
#include "tests/support/libraries.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

jit::CompileJob job_of(std::string source, std::string arch = "sm_80") {
  return {.name = "unit.cuh",
          .arch = std::move(arch),
          .source = std::move(source),
          .headers = {},
          .options = {"-default-device", "--std=c++20", "--ptxas-options=-v"}};
}

}  // namespace

TEST_CASE("the smoke kernels compile without spills for every architecture that NVRTC knows",
          "[cpu][jit][nvrtc]") {
  const auto nvrtc = test::nvrtc_or_skip();
  if (!nvrtc) return;
  jit::NvrtcCompiler compiler(nvrtc);
  const auto supported = nvrtc->supported_archs();
  int compiled = 0;
  for (const jit::Arch& arch : jit::known_archs()) {
    if (std::find(supported.begin(), supported.end(), *jit::arch_number(arch.name)) ==
        supported.end()) {
      continue;
    }
    CAPTURE(arch.name);
    const auto kernel = compiler.compile(job_of(test::kSmokeSource, std::string(arch.name)));
    REQUIRE(kernel);
    CHECK(kernel->cubin.size() > 1000);
    CHECK(kernel->resources.registers >= 8);
    CHECK(kernel->resources.smem_bytes == 1024);
    CHECK_FALSE(kernel->resources.spills());
    CHECK(kernel->seconds > 0);
    ++compiled;
  }
  CHECK(compiled >= 5);
}

TEST_CASE("a source that does not compile is an error that quotes the compiler",
          "[cpu][jit][nvrtc]") {
  const auto nvrtc = test::nvrtc_or_skip();
  if (!nvrtc) return;
  jit::NvrtcCompiler compiler(nvrtc);
  const auto kernel = compiler.compile(job_of("extern \"C\" __global__ void k() { absent(); }"));
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code == ErrorCode::compile_failed);
  CHECK_THAT(kernel.error().message, Catch::Contains("unit.cuh(1)") && Catch::Contains("absent"));
  CHECK_THAT(kernel.error().log, Catch::Contains("identifier \"absent\" is undefined"));
}

TEST_CASE("an architecture that NVRTC does not know is refused by name", "[cpu][jit][nvrtc]") {
  const auto nvrtc = test::nvrtc_or_skip();
  if (!nvrtc) return;
  jit::NvrtcCompiler compiler(nvrtc);
  const auto kernel = compiler.compile(job_of("extern \"C\" __global__ void k() {}", "sm_200a"));
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code == ErrorCode::unsupported);
  CHECK_THAT(kernel.error().message,
             Catch::Contains("sm_200a") && Catch::Contains("install a newer NVRTC"));
}

TEST_CASE("a missing NVRTC is an error that names files, folders and the package", "[cpu][jit]") {
  const test::TempDir empty;
  const auto files = jit::find_nvrtc({empty.path()});
  // The dynamic linker may know one; then that one is taken, and has its builtins.
  if (files) {
    CHECK(std::filesystem::exists(files->builtins));
    return;
  }
  CHECK(files.error().code == ErrorCode::not_found);
  CHECK_THAT(files.error().message, Catch::Contains("libnvrtc.so.13") &&
                                        Catch::Contains(empty.path().string()) &&
                                        Catch::Contains("nvidia-cuda-nvrtc"));
}

TEST_CASE("an NVRTC is told from another by its files' build ids", "[cpu][jit][nvrtc]") {
  const auto nvrtc = test::nvrtc_or_skip();
  if (!nvrtc) return;
  const jit::NvrtcFiles& files = nvrtc->files();
  CHECK(files.builtins.parent_path() == files.library.parent_path());
  int major = 0;
  int minor = 0;
  REQUIRE(nvrtc->nvrtcVersion(&major, &minor) == jit::NVRTC_SUCCESS);
  CHECK(files.version == std::to_string(major) + "." + std::to_string(minor));
  CHECK(files.build.size() > 20);

  // The same library with other builtins is another compiler.
  const test::TempDir folder;
  std::filesystem::create_symlink(files.library, folder / files.library.filename().string());
  test::write_file(folder / files.builtins.filename().string(), "other builtins");
  const auto other = jit::find_nvrtc({folder.path()});
  REQUIRE(other);
  CHECK(other->version == files.version);
  CHECK(other->build != files.build);
}
