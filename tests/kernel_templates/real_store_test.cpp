// The kernel store with NVRTC and the embedded templates, as the program uses it.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "kernel_templates/family.hpp"
#include "kernel_templates/rms_norm.space.hpp"
#include "runtime/base/compression.hpp"
#include "runtime/jit/bundle.hpp"
#include "runtime/jit/compile_pool.hpp"
#include "runtime/jit/kernel_store.hpp"
#include "tests/support/libraries.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

std::vector<jit::KernelRequest> requests() {
  std::vector<jit::KernelRequest> wanted;
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  for (const int hidden : {512, 4096}) {
    for (const auto& variant :
         kernels::variants_of<kernels::RmsNorm>({.hidden = hidden}, limits).extremes) {
      wanted.push_back({.variant = variant, .arch = "sm_90a"});
    }
  }
  return wanted;
}

}  // namespace

TEST_CASE("real kernels are compiled once, found again and fit in a small bundle",
          "[cpu][jit][nvrtc][cache]") {
  const auto nvrtc = test::nvrtc_or_skip();
  if (!nvrtc) return;
  const test::TempDir folder;
  const auto pool = std::make_shared<jit::CompilePool>(
      jit::CompilerIdentity{nvrtc->files().version, nvrtc->files().build},
      jit::CompilePool::Options{.worker_command = jit::CompilePool::worker_command(nvrtc->files()),
                                .jobs = 2});
  jit::KernelStore first(kernels::embedded_templates(), std::shared_ptr<jit::Compiler>(pool),
                         {.directories = {folder / "kernels"}});
  const auto wanted = requests();
  std::size_t compressed = 0;
  for (const auto& request : wanted) {
    const auto entry = first.get(request);
    REQUIRE(entry);
    const auto& cubin = (*entry)->kernel.cubin;
    compressed +=
        zstd_compress({reinterpret_cast<const char*>(cubin.data()), cubin.size()}, 6).size();
    CHECK((*entry)->kernel.seconds > 0);
  }
  CHECK(first.stats().compiled == static_cast<int>(wanted.size()));

  jit::KernelStore second(kernels::embedded_templates(), std::shared_ptr<jit::Compiler>(pool),
                          {.directories = {folder / "kernels"}});
  for (const auto& request : wanted)
    REQUIRE(second.get(request));
  CHECK(second.stats().compiled == 0);

  const auto file = folder / "kernels.bundle";
  const auto exported = jit::export_bundle({jit::CubinCache(folder / "kernels")}, {}, file);
  REQUIRE(exported);
  fmt::print("bundle: {} kernels, {} bytes; their cubins compressed one by one {} bytes\n",
             exported->kernels, exported->bundle_bytes, compressed);
  CHECK(static_cast<double>(exported->bundle_bytes) <= 1.1 * static_cast<double>(compressed));
}
