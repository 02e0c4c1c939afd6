#include "runtime/jit/kernel_store.hpp"

#include <fmt/format.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <latch>
#include <thread>

#include "runtime/jit/compile_job.hpp"
#include "tests/runtime/jit/store_fixture.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/standard_error.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using test::make_store;
using test::request;

namespace {

std::shared_ptr<test::FakeCompiler> fake(jit::CompilerIdentity identity = {"13.0", "fake"}) {
  return std::make_shared<test::FakeCompiler>(std::move(identity));
}

jit::KernelRequest other_request() {
  return {.variant = {.family = "other", .params = {}}, .arch = "sm_80"};
}

jit::KernelStore store_without_compiler(const std::filesystem::path& directory) {
  return jit::KernelStore(test::small_templates(),
                          fail(ErrorCode::not_found, "libnvrtc.so.13 is missing"),
                          {.directories = {directory}});
}

}  // namespace

TEST_CASE("the first start compiles, the second finds everything", "[cpu][jit][cache]") {
  const test::TempDir folder;
  const auto compiler = fake();
  auto first = make_store({folder.path()}, compiler);
  for (int i = 0; i < 5; ++i)
    REQUIRE(first.get(request(i)));
  CHECK(first.stats().compiled == 5);
  CHECK(first.stats().hits == 0);
  CHECK(first.would_compile(request(7)));

  auto second = make_store({folder.path()}, compiler);
  for (int i = 0; i < 5; ++i) {
    const auto kernel = second.get(request(i));
    REQUIRE(kernel);
    CHECK((*kernel)->kernel.cubin == (*first.get(request(i)))->kernel.cubin);
    CHECK_THAT((*kernel)->source, Catch::Contains(fmt::format("constexpr int N = {};", i)));
  }
  CHECK(second.stats().compiled == 0);
  CHECK(second.stats().hits == 5);
  CHECK(compiler->compiles() == 5);
  CHECK_FALSE(second.would_compile(request(4)));
  CHECK(test::damage_in(folder.path()).empty());
}

TEST_CASE("find gives what get would without compiling, and nothing else", "[cpu][jit][cache]") {
  const test::TempDir folder;
  const auto compiler = fake();
  auto first = make_store({folder.path()}, compiler);
  CHECK(first.find(request(1)) == nullptr);
  CHECK(compiler->compiles() == 0);
  const auto made = first.get(request(1));
  REQUIRE(made);
  CHECK(first.find(request(1)) == *made);  // from memory

  auto second = make_store({folder.path()}, compiler);
  const auto found = second.find(request(1));
  REQUIRE(found != nullptr);
  CHECK(found->kernel.cubin == (*made)->kernel.cubin);
  CHECK(second.stats().hits == 1);
  CHECK(second.get(request(1)).value() == found);  // which was kept
  CHECK(second.stats().hits == 1);
  CHECK(second.find(request(2)) == nullptr);
  CHECK(second.get(request(2)).has_value());  // and is no failure that is remembered
  // What is barred stays so, and what another asks for is not waited for.
  REQUIRE(second.bar(request(2), "wrong").has_value());
  CHECK(second.find(request(2)) == nullptr);
  CHECK(make_store({folder.path()}, compiler).find(request(2)) == nullptr);
  compiler->before = [&] { CHECK(second.find(request(3)) == nullptr); };
  REQUIRE(second.get(request(3)));
  compiler->before = [] {};
  // Without a compiler, or frozen, the entry of another one serves.
  CHECK(store_without_compiler(folder.path()).find(request(1)) != nullptr);
  CHECK(make_store({folder.path()}, fake({"13.1", "other"}), true).find(request(1)) != nullptr);
  CHECK(make_store({folder.path()}, fake({"13.1", "other"})).find(request(1)) == nullptr);
}

TEST_CASE("a kernel that many threads want is compiled once, without a lock", "[cpu][jit][cache]") {
  const test::TempDir folder;
  const auto compiler = fake();
  // Every compile waits until four are running: with a lock around it none would go on.
  std::latch four(4);
  std::atomic<int> late = 0;
  compiler->before = [&] {
    four.count_down();
    const auto start = std::chrono::steady_clock::now();
    while (!four.try_wait()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (std::chrono::steady_clock::now() - start > std::chrono::seconds(20) * test::kPatience) {
        ++late;
        return;
      }
    }
  };
  auto store = make_store({folder.path()}, compiler);
  std::atomic<int> served = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 16; ++i) {
      threads.emplace_back([&, i] { served += store.get(request(i % 4)).has_value() ? 1 : 0; });
    }
  }
  CHECK(served == 16);
  CHECK(late == 0);
  CHECK(compiler->compiles() == 4);
}

TEST_CASE("another folder, user, time or name of the folder changes no key", "[cpu][jit][cache]") {
  const test::TempDir a;
  const test::TempDir b;
  auto first = make_store({a.path()}, fake());
  REQUIRE(first.get(request(1)));
  std::filesystem::copy(a.path(), b / "moved", std::filesystem::copy_options::recursive);
  for (const auto& file : jit::CubinCache(b / "moved").files()) {
    std::filesystem::last_write_time(
        file.path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1000));
  }
  for (int i = 0; i < 10; ++i) {
    REQUIRE(::setenv(fmt::format("INGOT_TEST_UNRELATED_{}", i).c_str(), "value", 1) == 0);
  }
  auto second = make_store({b / "moved"}, fake());
  REQUIRE(second.get(request(1)));
  CHECK(second.stats().hits == 1);
  CHECK(second.stats().compiled == 0);
}

TEST_CASE("a changed shared header rebuilds exactly the families that include it",
          "[cpu][jit][cache]") {
  const test::TempDir folder;
  auto before = make_store({folder.path()}, fake());
  REQUIRE(before.get(request(1)));
  REQUIRE(before.get(other_request()));
  jit::KernelStore after(test::small_templates("constexpr int SHARED = 2;\n"),
                         std::shared_ptr<jit::Compiler>(fake()), {.directories = {folder.path()}});
  REQUIRE(after.get(request(1)));
  REQUIRE(after.get(other_request()));
  CHECK(after.stats().compiled == 1);
  CHECK(after.stats().hits == 1);
}

TEST_CASE("explain names the field that made a look-up miss", "[cpu][jit][cache]") {
  const test::TempDir folder;
  auto store = make_store({folder.path()}, fake());
  const auto nothing = store.explain(request(1));
  REQUIRE(nothing);
  CHECK_THAT(nothing->at(0), Catch::Contains("no entry of the family k"));
  REQUIRE(store.get(request(1)));
  CHECK_THAT(store.explain(request(1))->at(0), Catch::StartsWith("hit: "));

  const auto lines_of = [](const jit::KernelStore& asked, const jit::KernelRequest& wanted) {
    const auto lines = asked.explain(wanted);
    REQUIRE(lines);
    REQUIRE(lines->size() == 2);
    CHECK_THAT(lines->at(0), Catch::StartsWith("miss: the nearest entry is"));
    return lines->at(1);
  };
  CHECK(lines_of(store, request(2)) == "  param N: wanted 2, the entry has 1");
  auto other_arch = request(1);
  other_arch.arch = "sm_90a";
  CHECK(lines_of(store, other_arch) == "  arch: wanted sm_90a, the entry has sm_80");
  CHECK(lines_of(make_store({folder.path()}, fake({"13.1", "fake"})), request(1)) ==
        "  compiler (NVRTC version): wanted 13.1, the entry has 13.0");
  CHECK(lines_of(make_store({folder.path()}, fake({"13.0", "patched"})), request(1)) ==
        "  compiler-build (NVRTC build): wanted patched, the entry has fake");
  const jit::KernelStore changed(test::small_templates("constexpr int SHARED = 2;\n"),
                                 std::shared_ptr<jit::Compiler>(fake()),
                                 {.directories = {folder.path()}});
  CHECK_THAT(lines_of(changed, request(1)), Catch::Contains("template (with its includes)"));
}

TEST_CASE("the layers are asked in order and only the first is written", "[cpu][jit][cache]") {
  const test::TempDir shared;
  const test::TempDir own;
  auto provider = make_store({shared.path()}, fake());
  REQUIRE(provider.get(request(1)));
  auto store = make_store({own.path(), shared.path()}, fake());
  REQUIRE(store.get(request(1)));
  REQUIRE(store.get(request(2)));
  CHECK(store.stats().hits == 1);
  CHECK(store.stats().compiled == 1);
  CHECK(jit::CubinCache(shared.path()).files().size() == 1);
  CHECK(jit::CubinCache(own.path()).files().size() == 1);
}

TEST_CASE("a frozen cache serves the newest entry of any compiler and never compiles",
          "[cpu][jit][cache]") {
  const test::TempDir folder;
  auto old_store = make_store({folder.path()}, fake({"12.4", "old"}));
  REQUIRE(old_store.get(request(1)));
  for (const auto& file : jit::CubinCache(folder.path()).files()) {
    std::filesystem::last_write_time(
        file.path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  }
  auto newer_store = make_store({folder.path()}, fake({"12.9", "newer"}));
  REQUIRE(newer_store.get(request(1)));

  const auto compiler = fake({"13.0", "newest"});
  auto frozen = make_store({folder.path()}, compiler, true);
  const auto kernel = frozen.get(request(1));
  REQUIRE(kernel);
  CHECK((*kernel)->manifest.compiler.version == "12.9");
  const auto missing = frozen.get(request(2));
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == ErrorCode::not_found);
  CHECK_THAT(missing.error().message, Catch::Contains("k N=2 SINK=1 for sm_80") &&
                                          Catch::Contains("--frozen") &&
                                          Catch::Contains("ingot prewarm"));
  CHECK(compiler->compiles() == 0);
  CHECK(frozen.stats().compiled == 0);
}

TEST_CASE("without a compiler the cache serves, and what it lacks is an error that says why",
          "[cpu][jit][cache]") {
  const test::TempDir folder;
  auto filler = make_store({folder.path()}, fake());
  REQUIRE(filler.get(request(1)));
  auto store = store_without_compiler(folder.path());
  REQUIRE(store.get(request(1)));
  const auto missing = store.get(request(2));
  REQUIRE_FALSE(missing);
  CHECK_THAT(missing.error().message, Catch::Contains("libnvrtc.so.13 is missing"));
}

TEST_CASE("a variant that does not compile is barred until its template changes",
          "[cpu][jit][cache]") {
  const test::TempDir folder;
  const auto compiler = fake();
  jit::KernelRequest bad{.variant = {.family = "k", .params = {{"int", "FAIL", 1}}},
                         .arch = "sm_80"};
  auto first = make_store({folder.path()}, compiler);
  const auto failed = first.get(bad);
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code == ErrorCode::compile_failed);
  CHECK_THAT(failed.error().message, Catch::Contains("k FAIL=1"));
  CHECK(failed.error().log == "line 1: no\n");
  REQUIRE(first.get(request(1)));  // the others go on

  auto second = make_store({folder.path()}, compiler);
  const auto barred = second.get(bad);
  REQUIRE_FALSE(barred);
  CHECK_THAT(barred.error().message, Catch::Contains("is barred"));
  CHECK(barred.error().log == "line 1: no\n");
  CHECK(second.stats().compiled == 0);
  CHECK(second.stats().barred == 1);
  CHECK(compiler->compiles() == 2);
  CHECK_THAT(second.explain(bad)->at(0), Catch::StartsWith("barred by "));

  jit::KernelStore changed(test::small_templates("constexpr int SHARED = 2;\n"),
                           std::shared_ptr<jit::Compiler>(compiler),
                           {.directories = {folder.path()}});
  REQUIRE_FALSE(changed.get(bad));
  CHECK(changed.stats().compiled == 1);
}

TEST_CASE("a variant that spills is barred, but a default may", "[cpu][jit][cache]") {
  const test::TempDir folder;
  jit::KernelRequest spills{.variant = {.family = "k", .params = {{"int", "SPILL", 1}}},
                            .arch = "sm_80"};
  auto store = make_store({folder.path()}, fake());
  CHECK_THAT(store.get(spills).error().message, Catch::Contains("spills registers"));
  CHECK_FALSE(store.would_compile(spills));
  auto as_default = spills;
  as_default.allow_spills = true;
  CHECK(store.would_compile(as_default));
  REQUIRE(store.get(as_default));
  CHECK((*store.get(as_default))->kernel.resources.spills());

  auto second = make_store({folder.path()}, fake());  // one entry serves both
  REQUIRE(second.get(as_default));
  CHECK_THAT(second.get(spills).error().message, Catch::Contains("spills registers"));
  CHECK(second.stats().compiled == 0);
}

TEST_CASE("a variant can be barred for a reason found later", "[cpu][jit][cache]") {
  const test::TempDir folder;
  auto store = make_store({folder.path()}, fake());
  REQUIRE(store.get(request(1)));
  REQUIRE(store.bar(request(1), "it faults on NVIDIA H200"));
  CHECK_THAT(store.get(request(1)).error().message, Catch::Contains("it faults on NVIDIA H200"));
  auto second = make_store({folder.path()}, fake());
  CHECK_THAT(second.get(request(1)).error().message, Catch::Contains("it faults"));
}

TEST_CASE("what is barred while others ask for it stays barred", "[cpu][jit][cache]") {
  for (int round = 0; round < 100; ++round) {
    const test::TempDir folder;
    auto store = make_store({folder.path()}, fake());
    REQUIRE(store.get(request(1)));
    std::atomic<bool> barred = false;
    std::latch asking(2);
    std::vector<std::jthread> others;
    for (int i = 0; i < 2; ++i) {
      others.emplace_back([&] {
        asking.count_down();
        while (!barred)
          (void)store.get(request(1));
      });
    }
    asking.wait();
    REQUIRE(store.bar(request(1), "its sums are wrong"));
    barred = true;
    others.clear();
    const auto kernel = store.get(request(1));
    REQUIRE_FALSE(kernel);
    CHECK_THAT(kernel.error().message, Catch::Contains("is barred: its sums are wrong"));
  }
}

TEST_CASE("without a folder a kernel is barred in memory", "[cpu][jit][cache]") {
  (void)test::standard_error_of([&] {
    auto store = make_store({}, fake());
    REQUIRE(store.get(request(1)));
    CHECK(store.bar(request(1), "its sums are wrong").error().code == ErrorCode::io);
    CHECK_THAT(store.get(request(1)).error().message, Catch::Contains("its sums are wrong"));
    CHECK(store.get(request(2)));
  });
}

TEST_CASE("a compiler that was killed bars nothing", "[cpu][jit][cache]") {
  struct Killed : jit::Compiler {
    jit::CompilerIdentity identity() const override { return {"13.0", "fake"}; }
    Result<jit::CompiledKernel> compile(const jit::CompileJob&) override {
      return fail(ErrorCode::io, "killed");
    }
  };
  const test::TempDir folder;
  auto store = make_store({folder.path()}, std::make_shared<Killed>());
  CHECK(store.get(request(1)).error().code == ErrorCode::io);
  CHECK(store.get(request(1)).error().code == ErrorCode::io);
  CHECK(store.stats().compiled == 2);  // tried again
  CHECK(jit::CubinCache(folder.path()).files().empty());
}

TEST_CASE("without a folder kernels live in memory, with one warning", "[cpu][jit][cache]") {
  const auto compiler = fake();
  const std::string said = test::standard_error_of([&] {
    auto store = make_store({}, compiler);
    for (int i = 0; i < 3; ++i)
      REQUIRE(store.get(request(i)));
    for (int i = 0; i < 3; ++i)
      REQUIRE(store.get(request(i)));
    CHECK(store.stats().compiled == 3);
    CHECK(store.stats().unsaved == 3);
  });
  CHECK(said ==
        "ingot: warning: there is no kernel cache folder: kernels are kept in memory and compiled "
        "again at the next start; name one with --cache-dir\n");
}

TEST_CASE("a warm start finds 200 kernels in under 100 ms", "[cpu][jit][cache]") {
  const test::TempDir folder;
  {
    auto store = make_store({folder.path()}, fake());
    const jit::CubinCache cache(folder.path());
    for (int i = 0; i < 200; ++i) {
      auto entry = **store.get(request(i));
      // The size of a real kernel: 40 KB of code that compresses to a third, 20 KB of source.
      for (int word = 0; word < 10000; ++word) {
        entry.kernel.cubin.push_back(static_cast<std::byte>(word * word >> 3));
        entry.kernel.cubin.insert(entry.kernel.cubin.end(), 3, static_cast<std::byte>(word & 3));
      }
      for (int line = 0; line < 500; ++line)
        entry.source += fmt::format("int source_line_{};\n", line);
      REQUIRE(cache.publish(entry));
    }
  }
  double best = 1e9;  // the machine may be busy with something else
  for (int attempt = 0; attempt < 5; ++attempt) {
    auto store = make_store({folder.path()}, fake());
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 200; ++i)
      REQUIRE(store.get(request(i)));
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count());
    CHECK(store.stats().compiled == 0);
    CHECK(store.stats().hits == 200);
  }
  fmt::print("kernel store: 200 kernels found in {:.1f} ms\n", best);
  if (test::is_sanitized() && test::skip("a sanitizer changes times")) return;
  CHECK(best < 100);
}
