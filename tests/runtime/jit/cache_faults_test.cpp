// What goes wrong around a kernel cache: many processes, kills, damage, folders that are missing,
// read-only, full or removed.
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <random>
#include <thread>

#include "runtime/base/atomic_publish.hpp"
#include "runtime/base/subprocess.hpp"
#include "tests/runtime/jit/store_fixture.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/standard_error.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using test::make_store;
using test::request;

namespace {

constexpr int kCannotRun = 77;

Subprocess start(std::vector<std::string> words) {
  words.insert(words.begin(), "/proc/self/exe");
  return value_or_throw(Subprocess::spawn(words));
}

int entries_in(const std::filesystem::path& directory) {
  return static_cast<int>(jit::CubinCache(directory).files().size());
}

int temporaries_in(const std::filesystem::path& directory) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (is_temporary_name(entry.path().filename().string())) ++count;
  }
  return count;
}

std::shared_ptr<jit::Compiler> fake() {
  return std::make_shared<test::FakeCompiler>();
}

}  // namespace

TEST_CASE("processes that fill one empty folder at one instant leave one entry per key",
          "[cpu][jit][cache][stress]") {
  const int processes = GENERATE(2, 8);
  constexpr int kRounds = 20;
  constexpr int kKernels = 6;
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(processes, round);
    const test::TempDir folder;
    const auto cache = folder / "kernels";
    std::vector<Subprocess> children;
    for (int i = 0; i < processes; ++i) {
      children.push_back(start({"fill", cache.string(), std::to_string(kKernels)}));
    }
    for (auto& child : children)
      REQUIRE(write_frame(child.channel(), "go"));
    for (auto& child : children) {
      const auto end = child.wait();
      CAPTURE(child.output_tail());
      REQUIRE(end.exit_status == 0);
      REQUIRE_THAT(child.output_tail(), Catch::Contains("unsaved 0 damaged 0"));
    }
    REQUIRE(entries_in(cache) == kKernels);
    REQUIRE(temporaries_in(cache) == 0);
    REQUIRE(test::damage_in(cache).empty());
  }
}

TEST_CASE("a process that is killed at any moment harms no entry and blocks nobody",
          "[cpu][jit][cache][stress]") {
  const test::TempDir folder;
  const auto cache = folder / "kernels";
  auto first = make_store({cache}, fake());
  REQUIRE(first.get(request(1000)));
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    CAPTURE(round);
    auto child = start({"fill-for-ever", cache.string()});
    std::this_thread::sleep_for(std::chrono::microseconds(500 + random() % 20000));
    child.kill();
    CHECK(child.wait().signal == SIGKILL);
    REQUIRE(test::damage_in(cache).empty());
  }
  // The earlier entry is there, and a new process goes on at once.
  auto store = make_store({cache}, fake());
  REQUIRE(store.get(request(1000)));
  CHECK(store.stats().hits == 1);
  auto child = start({"fill", cache.string(), "40"});
  REQUIRE(write_frame(child.channel(), "go"));
  CHECK(child.wait().exit_status == 0);
  CHECK(test::damage_in(cache).empty());

  // What the killed ones left is swept once it is old, and not before.
  const int left = temporaries_in(cache);
  CHECK(jit::CubinCache(cache).collect({}).temporaries == 0);
  CHECK(jit::CubinCache(cache).collect({.temporary_age = std::chrono::seconds(-1)}).temporaries ==
        left);
  CHECK(temporaries_in(cache) == 0);
}

TEST_CASE("a damaged entry is reported once, rebuilt and good again", "[cpu][jit][cache]") {
  const test::TempDir folder;
  auto first = make_store({folder.path()}, fake());
  REQUIRE(first.get(request(1)));
  const auto file = test::only_file(folder.path());
  const std::string good = test::read_file(file);

  // A byte in every region (names and lengths of sections, manifest, resources, source, cubin, log,
  // checksum), a cut, an empty file, and bytes behind the end.
  std::vector<std::string> damages;
  for (std::size_t at = 0; at < good.size(); at += 29) {
    damages.push_back(good);
    damages.back()[at] = static_cast<char>(damages.back()[at] ^ 0x10);
  }
  damages.push_back(good.substr(0, good.size() - 1));
  damages.push_back(good.substr(0, good.size() / 2));
  damages.emplace_back();
  damages.push_back(good + "x");
  for (const std::string& damaged : damages) {
    test::write_file(file, damaged);
    CHECK(test::damage_in(folder.path()).size() == 1);
    const std::string said = test::standard_error_of([&] {
      auto store = make_store({folder.path()}, fake());
      REQUIRE(store.get(request(1)));
      REQUIRE(store.get(request(1)));
      CHECK(store.stats().damaged == 1);
      CHECK(store.stats().compiled == 1);
    });
    CHECK(std::count(said.begin(), said.end(), '\n') == 1);
    CHECK_THAT(said, Catch::Contains("warning: ") && Catch::Contains(file.string()) &&
                         Catch::Contains("built again"));
    CHECK(test::damage_in(folder.path()).empty());
    CHECK(test::read_file(file) == good);
  }
}

TEST_CASE("entries that were swapped are found under the wrong key and rebuilt",
          "[cpu][jit][cache]") {
  const test::TempDir folder;
  auto first = make_store({folder.path()}, fake());
  REQUIRE(first.get(request(1)));
  REQUIRE(first.get(request(2)));
  const auto files = jit::CubinCache(folder.path()).files();
  REQUIRE(files.size() == 2);
  std::filesystem::rename(files[0].path, folder / "aside");
  std::filesystem::rename(files[1].path, files[0].path);
  std::filesystem::rename(folder / "aside", files[1].path);
  CHECK(test::damage_in(folder.path()).size() == 2);
  auto second = make_store({folder.path()}, fake());
  for (const int number : {1, 2}) {
    const auto kernel = second.get(request(number));
    REQUIRE(kernel);
    CHECK((*kernel)->manifest.params[0].value == number);
  }
  CHECK(second.stats().damaged == 2);
  CHECK(test::damage_in(folder.path()).empty());
}

TEST_CASE("a read-only folder serves what it has; what it lacks lives in memory, with one warning",
          "[cpu][jit][cache]") {
  const test::TempDir folder;
  const auto cache = folder / "kernels";
  const bool filled = GENERATE(true, false);
  if (filled) {
    auto store = make_store({cache}, fake());
    REQUIRE(store.get(request(0)));
  } else {
    std::filesystem::create_directories(cache);
  }
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  REQUIRE(::chmod(cache.c_str(), 0555) == 0);
  auto child = start({"fill-as-nobody", cache.string(), "3"});
  const auto end = child.wait();
  if (end.exit_status == kCannotRun && test::skip("cannot become another user here")) return;
  CAPTURE(child.output_tail());
  CHECK(end.exit_status == 0);
  const std::string said = child.output_tail();
  CHECK_THAT(said, Catch::Contains(filled ? "hits 1 compiled 2 unsaved 2 damaged 0"
                                          : "hits 0 compiled 3 unsaved 3 damaged 0"));
  CHECK_THAT(said, Catch::Contains("cannot be written") && Catch::Contains("Permission denied"));
  CHECK(said.find("warning") == said.rfind("warning"));
  CHECK(entries_in(cache) == (filled ? 1 : 0));
}

TEST_CASE("a folder that nobody may even read is passed over", "[cpu][jit][cache]") {
  const test::TempDir folder;
  const auto cache = folder / "kernels";
  std::filesystem::create_directories(cache);
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  REQUIRE(::chmod(cache.c_str(), 0700) == 0);
  if (::geteuid() != 0) REQUIRE(::chmod(cache.c_str(), 0) == 0);
  auto child = start({"fill-as-nobody", cache.string(), "2"});
  const auto end = child.wait();
  if (end.exit_status == kCannotRun && test::skip("cannot become another user here")) return;
  CAPTURE(child.output_tail());
  CHECK(end.exit_status == 0);
  CHECK_THAT(child.output_tail(), Catch::Contains("compiled 2 unsaved 2"));
  REQUIRE(::chmod(cache.c_str(), 0700) == 0);
}

TEST_CASE("missing folders are made, and a file in their place costs only the cache",
          "[cpu][jit][cache]") {
  const test::TempDir folder;
  const auto deep = folder / "a/b/c";
  auto store = make_store({deep}, fake());
  REQUIRE(store.get(request(1)));
  CHECK(entries_in(deep) == 1);

  test::write_file(folder / "file", "no folder");
  const std::string said = test::standard_error_of([&] {
    auto blocked = make_store({folder / "file/kernels"}, fake());
    REQUIRE(blocked.get(request(1)));
    REQUIRE(blocked.get(request(2)));
    CHECK(blocked.stats().unsaved == 2);
  });
  CHECK(std::count(said.begin(), said.end(), '\n') == 1);
}

TEST_CASE("on a full disk kernels live in memory and nothing half-written stays",
          "[cpu][jit][cache]") {
  const test::TempDir folder;
  auto child = start({"fill-full-disk", folder.path().string()});
  const auto end = child.wait();
  if (end.exit_status == kCannotRun && test::skip("cannot mount a file system here")) return;
  CAPTURE(child.output_tail());
  CHECK(end.exit_status == 0);
  CHECK_THAT(child.output_tail(),
             Catch::Contains("compiled 3 unsaved 3") && Catch::Contains("No space left on device"));
}

TEST_CASE("a folder that is removed while the program runs is made again", "[cpu][jit][cache]") {
  const test::TempDir folder;
  const auto cache = folder / "kernels";
  auto store = make_store({cache}, fake());
  REQUIRE(store.get(request(1)));
  std::filesystem::remove_all(cache);
  REQUIRE(store.get(request(1)));  // from memory
  REQUIRE(store.get(request(2)));
  CHECK(store.stats().unsaved == 0);
  CHECK(entries_in(cache) == 1);
}

TEST_CASE("collecting garbage in a loop breaks none of four loading processes",
          "[cpu][jit][cache][stress]") {
  const test::TempDir folder;
  const auto cache = folder / "kernels";
  std::atomic<bool> done = false;
  int removed = 0;
  std::jthread collector([&] {
    const jit::CubinCache::GcPolicy keep_little{.most_bytes = 3000};
    while (!done)
      removed += jit::CubinCache(cache).collect(keep_little).removed;
  });
  for (int round = 0; round < 5; ++round) {
    std::vector<Subprocess> children;
    for (int i = 0; i < 4; ++i)
      children.push_back(start({"fill", cache.string(), "12"}));
    for (auto& child : children)
      REQUIRE(write_frame(child.channel(), "go"));
    for (auto& child : children) {
      const auto end = child.wait();
      CAPTURE(child.output_tail());
      REQUIRE(end.exit_status == 0);
      REQUIRE_THAT(child.output_tail(), Catch::Contains("unsaved 0 damaged 0"));
    }
  }
  done = true;
  collector.join();
  CHECK(removed > 0);
  CHECK(test::damage_in(cache).empty());
}

TEST_CASE("a winner whose entry becomes visible two seconds late is no error",
          "[cpu][jit][cache]") {
  const test::TempDir folder;
  const auto cache = folder / "kernels";
  // Another machine compiled the same kernel first; its entry shows here only after we have missed
  // it, compiled and published ours.
  const test::TempDir elsewhere;
  auto winner = make_store({elsewhere.path()}, fake());
  REQUIRE(winner.get(request(1)));
  const auto theirs = test::only_file(elsewhere.path());
  std::jthread late([&] {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    std::filesystem::copy_file(theirs, cache / "arriving");
    std::filesystem::rename(cache / "arriving", cache / theirs.filename().string());
  });
  auto loser = make_store({cache}, fake());
  const auto kernel = loser.get(request(1));
  REQUIRE(kernel);
  CHECK(loser.stats().compiled == 1);
  CHECK(loser.stats().unsaved == 0);
  late.join();
  CHECK(*loser.get(request(1)) == *kernel);  // what it built is what it uses
  CHECK(entries_in(cache) == 1);
  auto next = make_store({cache}, fake());
  REQUIRE(next.get(request(1)));
  CHECK(next.stats().hits == 1);
}

TEST_CASE("collecting keeps what was used last and drops what is old, damaged or too much",
          "[cpu][jit][cache]") {
  const test::TempDir folder;
  auto store = make_store({folder.path()}, fake());
  for (int i = 0; i < 6; ++i)
    REQUIRE(store.get(request(i)));
  const jit::CubinCache cache(folder.path());
  const auto files = cache.files();
  const auto now = std::filesystem::file_time_type::clock::now();
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::filesystem::last_write_time(files[i].path, now - std::chrono::hours(48 * i));
  }
  test::write_file(files[0].path, "damaged");
  const auto first = cache.collect({.most_age = std::chrono::hours(24 * 7)});
  CHECK(first.damaged == 1);
  CHECK(first.removed == 3);  // and those unused for 8 and 10 days
  CHECK(first.kept == 3);
  const auto second = cache.collect({.most_bytes = files[1].bytes + files[2].bytes});
  CHECK(second.kept == 2);
  CHECK(std::filesystem::exists(files[1].path));
  CHECK(std::filesystem::exists(files[2].path));

  // A hit makes an old entry young again.
  std::filesystem::last_write_time(files[1].path, now - std::chrono::hours(24 * 80));
  auto user = make_store({folder.path()}, fake());
  for (int i = 0; i < 6; ++i)
    REQUIRE(user.get(request(i)));
  CHECK(cache.collect({.most_age = std::chrono::hours(24 * 7)}).removed == 0);
}
