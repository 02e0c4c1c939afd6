#include "runtime/jit/nvrtc_compiler.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <span>

#include "runtime/jit/arch.hpp"
#include "runtime/jit/cubin_info.hpp"
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

TEST_CASE("one source compiled twice is reported twice", "[cpu][jit][nvrtc]") {
  const auto nvrtc = test::nvrtc_or_skip();
  if (!nvrtc) return;
  jit::NvrtcCompiler compiler(nvrtc);
  const auto first = compiler.compile(job_of(test::kSmokeSource));
  const auto second = compiler.compile(job_of(test::kSmokeSource));
  REQUIRE(first);
  REQUIRE(second);
  CHECK(second->resources == first->resources);
  CHECK_THAT(second->log, Catch::Contains("registers"));
}

TEST_CASE("a cubin tells its registers, stack and shared memory as the log does",
          "[cpu][jit][nvrtc]") {
  const auto nvrtc = test::nvrtc_or_skip();
  if (!nvrtc) return;
  jit::NvrtcCompiler compiler(nvrtc);
  const char* arch = GENERATE("sm_80", "sm_90a", "sm_120a");
  CAPTURE(arch);
  // An array that is indexed at run time lies on the stack.
  const char* source = R"cuda(
extern "C" __global__ void __launch_bounds__(128) k(float* p) {
  __shared__ float s[128];
  s[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  float v[64];
  for (int i = 0; i < 64; i++) v[i] = p[i + (int)s[i]];
  p[(int)v[(int)p[3]]] = 3;
})cuda";
  const auto kernel = compiler.compile(job_of(source, arch));
  REQUIRE(kernel);
  CHECK(kernel->resources.stack_bytes == 256);
  CHECK(kernel->resources.smem_bytes == 512);
  CHECK_FALSE(kernel->resources.spills());
  const auto read = jit::resources_in_cubin(kernel->cubin);
  REQUIRE(read);
  CHECK(read->registers == kernel->resources.registers);
  CHECK(read->stack_bytes == kernel->resources.stack_bytes);
  CHECK(read->smem_bytes == kernel->resources.smem_bytes);
  CHECK(read->spills());  // on the safe side

  // Damage is an error or other numbers, never a crash.
  for (std::size_t cut = 0; cut < kernel->cubin.size(); cut += 7) {
    (void)jit::resources_in_cubin(std::span(kernel->cubin).first(cut));
  }
  CHECK_FALSE(jit::resources_in_cubin({}));
}

TEST_CASE("a missing NVRTC is an error that names files, folders and the package", "[cpu][jit]") {
  const test::TempDir empty;
  const auto files = jit::find_nvrtc({empty.path()}, jit::LinkerSearch::no);
  REQUIRE_FALSE(files);
  CHECK(files.error().code == ErrorCode::not_found);
  CHECK_THAT(files.error().message, Catch::Contains("libnvrtc.so.13") &&
                                        Catch::Contains(empty.path().string()) &&
                                        Catch::Contains("nvidia-cuda-nvrtc"));
}

TEST_CASE("an NVRTC without its builtins is passed over, and named if there is no other",
          "[cpu][jit]") {
  const test::TempDir bare;
  const test::TempDir whole;
  test::write_file(bare / "libnvrtc.so.13", "a library");
  test::write_file(whole / "libnvrtc.so.13", "another");
  test::write_file(whole / "libnvrtc-builtins.so.13.2", "its builtins");
  test::write_file(whole / "libnvrtc-builtins.so.13.0", "older builtins");
  test::write_file(whole / "libnvrtc-builtins.so.12.9", "builtins of another");
  const auto missing = jit::find_nvrtc({bare.path()}, jit::LinkerSearch::no);
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == ErrorCode::not_found);
  CHECK_THAT(missing.error().message, Catch::Contains((bare / "libnvrtc.so.13").string()) &&
                                          Catch::Contains("libnvrtc-builtins.so"));
  const auto found = jit::find_nvrtc({bare.path(), whole.path()}, jit::LinkerSearch::no);
  REQUIRE(found);
  CHECK(found->library == whole / "libnvrtc.so.13");
  CHECK(found->version == "13.2");
  CHECK_THAT(found->build, Catch::StartsWith("xxh3-"));  // files without a build id are digested
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
