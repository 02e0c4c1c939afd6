#include "runtime/jit/compile_pool.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <thread>

#include "runtime/jit/compile_job.hpp"
#include "runtime/jit/compile_worker.hpp"
#include "tests/runtime/jit/fake_compiler.hpp"
#include "tests/support/libraries.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

jit::CompileJob job_of(std::string source) {
  return {.name = "unit.cuh",
          .arch = "sm_80",
          .source = std::move(source),
          .headers = {{"a.h", "int a;"}},
          .options = jit::canonical_options()};
}

jit::CompilePool::Options fake_options(int jobs = 1) {
  return {.worker_command = {"/proc/self/exe", "fake-worker"}, .jobs = jobs};
}

const jit::CompilerIdentity kFake{"13.0", "fake"};

}  // namespace

TEST_CASE("jobs and replies survive their frames, torn frames do not", "[cpu][jit]") {
  const auto job = job_of(std::string("source \0 with a zero", 20));
  const std::string frame = jit::encode_job(job);
  const auto decoded = jit::decode_job(frame);
  REQUIRE(decoded);
  CHECK(decoded->source == job.source);
  CHECK(decoded->headers == job.headers);
  CHECK(decoded->options == job.options);
  for (std::size_t cut = 0; cut < frame.size(); ++cut) {
    CHECK_FALSE(jit::decode_job(frame.substr(0, cut)));
  }
  CHECK_FALSE(jit::decode_job(frame + "x"));

  const std::string error =
      jit::encode_reply({.result = fail(ErrorCode::compile_failed, "no"), .resident_bytes = 5});
  REQUIRE(jit::decode_reply(error));
  CHECK(jit::decode_reply(error)->result.error().message == "no");
  CHECK_FALSE(jit::decode_reply(error.substr(0, 20)));
  CHECK_FALSE(jit::decode_reply("\xff\xff\xff\xff\xff\xff\xff\xff"));
}

TEST_CASE("a pool compiles in a child and hands on cubin, log and resources", "[cpu][jit]") {
  jit::CompilePool pool(kFake, fake_options());
  const auto kernel = pool.compile(job_of("int x;"));
  REQUIRE(kernel);
  CHECK(kernel->cubin == test::fake_cubin(job_of("int x;")));
  CHECK(kernel->resources.registers == 32);
  CHECK_THAT(kernel->log, Catch::Contains("Used 32 registers"));
  CHECK(kernel->seconds == 0.001);
  CHECK(pool.stats().started == 1);
  CHECK(pool.identity() == kFake);
}

TEST_CASE("a compiler that crashes on one variant costs that variant alone", "[cpu][jit]") {
  jit::CompilePool pool(kFake, fake_options(2));
  std::vector<Result<jit::CompiledKernel>> results(8, fail(ErrorCode::io, "not run"));
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < results.size(); ++i) {
      threads.emplace_back([&, i] {
        results[i] = pool.compile(job_of(i == 3 ? "CRASH" : fmt::format("int x{};", i)));
      });
    }
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    CAPTURE(i);
    CHECK(results[i].has_value() == (i != 3));
  }
  const Error& error = results[3].error();
  CHECK(error.code == ErrorCode::compile_failed);
  CHECK_THAT(error.message, Catch::Contains("unit.cuh for sm_80") && Catch::Contains("signal 11") &&
                                Catch::Contains("free(): invalid pointer"));
  CHECK(pool.stats().crashed == 1);
}

TEST_CASE("a compiler that is killed is tried once more and bars nothing", "[cpu][jit]") {
  jit::CompilePool pool(kFake, fake_options());
  const auto kernel = pool.compile(job_of(GENERATE("KILLED", "INTERRUPTED")));
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code == ErrorCode::io);
  CHECK_THAT(kernel.error().message, Catch::Contains("killed twice") && Catch::Contains("--jobs"));
  CHECK(pool.stats().crashed == 2);
  CHECK(pool.compile(job_of("int x;")));
}

TEST_CASE("a compiler that hangs is stopped after the time limit", "[cpu][jit]") {
  auto options = fake_options();
  options.timeout = std::chrono::milliseconds(200);
  jit::CompilePool pool(kFake, options);
  const auto kernel = pool.compile(job_of("HANG"));
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code == ErrorCode::compile_failed);
  CHECK_THAT(kernel.error().message, Catch::Contains("no result after 0.2 seconds"));
  CHECK(pool.compile(job_of("int x;")));
}

TEST_CASE("a worker that cannot start, or is no worker, is an error", "[cpu][jit]") {
  jit::CompilePool absent(kFake, {.worker_command = {"/absent/program"}});
  CHECK(absent.compile(job_of("int x;")).error().code == ErrorCode::io);
  CHECK(absent.compile(job_of("int x;")).error().code == ErrorCode::io);  // the slot came back

  jit::CompilePool other(kFake, {.worker_command = {"/proc/self/exe", "exit-status-3"}});
  CHECK_THAT(other.compile(job_of("int x;")).error().message, Catch::Contains("exit status 3"));
}

TEST_CASE("workers are replaced after their share of compiles", "[cpu][jit]") {
  auto options = fake_options();
  options.compiles_per_worker = 3;
  jit::CompilePool pool(kFake, options);
  for (int i = 0; i < 7; ++i)
    REQUIRE(pool.compile(job_of(fmt::format("int x{};", i))));
  CHECK(pool.stats().started == 3);

  options.compiles_per_worker = 100;
  options.worker_bytes = 1;  // every worker is too big
  jit::CompilePool small(kFake, options);
  for (int i = 0; i < 4; ++i)
    REQUIRE(small.compile(job_of(fmt::format("int x{};", i))));
  CHECK(small.stats().started == 4);
}

TEST_CASE("NVRTC in children gives the cubin that NVRTC here gives", "[cpu][jit][nvrtc]") {
  const auto nvrtc = test::nvrtc_or_skip();
  if (!nvrtc) return;
  auto pool = jit::CompilePool::with_nvrtc(nvrtc->files(), 1);
  const auto kernel = pool.compile(job_of("extern \"C\" __global__ void k(int* p) { *p = 1; }"));
  REQUIRE(kernel);
  CHECK(kernel->cubin.size() > 500);
  CHECK(kernel->resources.registers >= 4);
  CHECK(pool.identity().version == nvrtc->files().version);

  const auto refused = pool.compile(job_of("extern \"C\" __global__ void k() { absent(); }"));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::compile_failed);
  CHECK_THAT(refused.error().log, Catch::Contains("absent"));
}

TEST_CASE("children without an NVRTC say what is missing", "[cpu][jit]") {
  jit::NvrtcFiles files;
  files.library = "/absent/libnvrtc.so.13";
  files.builtins = "/absent/libnvrtc-builtins.so.13.0";
  files.version = "13.0";
  files.build = "none";
  auto pool = jit::CompilePool::with_nvrtc(files, 1);
  const auto kernel = pool.compile(job_of("int x;"));
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code == ErrorCode::not_found);
  CHECK_THAT(kernel.error().message, Catch::Contains("/absent/libnvrtc-builtins.so.13.0"));
  CHECK(pool.stats().crashed == 0);
}

TEST_CASE("a thousand small variants leave the workers' memory flat", "[cpu][jit][nvrtc]") {
  const auto nvrtc = test::nvrtc_or_skip();
  if (!nvrtc) return;
  auto pool = jit::CompilePool::with_nvrtc(nvrtc->files(), 2);
  constexpr int kVariants = 1000;
  std::array<std::uint64_t, 2> most{};  // resident bytes in the first and the second half
  std::atomic<int> next = 0;
  std::atomic<int> failed = 0;
  const auto run_until = [&](int end, std::uint64_t& half) {
    std::mutex mutex;
    std::vector<std::jthread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        for (int at = next++; at < end; at = next++) {
          if (!pool.compile(job_of(
                  fmt::format("extern \"C\" __global__ void k(int* p) {{ *p = {}; }}", at)))) {
            ++failed;
          }
          const std::lock_guard lock(mutex);
          half = std::max(half, pool.stats().resident_bytes);
        }
      });
    }
  };
  run_until(kVariants / 2, most[0]);
  next = kVariants / 2;
  run_until(kVariants, most[1]);
  CHECK(failed == 0);
  fmt::print(
      "compile pool: {} variants by {} workers; most resident bytes of a worker {} MiB in "
      "the first half, {} MiB in the second\n",
      kVariants, pool.stats().started, most[0] >> 20, most[1] >> 20);
  CHECK(static_cast<double>(most[1]) < 1.1 * static_cast<double>(most[0]));
}
