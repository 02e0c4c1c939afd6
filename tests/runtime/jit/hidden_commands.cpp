// The children of this suite's tests are this program run again.
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/base/subprocess.hpp"
#include "runtime/jit/bundle.hpp"
#include "runtime/jit/compile_worker.hpp"
#include "tests/runtime/jit/fake_compiler.hpp"
#include "tests/runtime/jit/store_fixture.hpp"

namespace {

using namespace ingot;

constexpr int kCannotRun = 77;  // the test that started us skips

/// Gets kernels 0 … count-1 from a store over `directory` and says what happened.
int fill(const std::filesystem::path& directory, int count) {
  auto store = test::make_store({directory}, std::make_shared<test::FakeCompiler>());
  for (int i = 0; i < count; ++i) {
    const auto kernel = store.get(test::request(i));
    if (!kernel) {
      fmt::print(stderr, "{}\n", kernel.error().message);
      return 1;
    }
    if ((*kernel)->kernel.cubin.size() < 100) return 2;
  }
  const auto stats = store.stats();
  fmt::print("hits {} compiled {} unsaved {} damaged {}\n", stats.hits, stats.compiled,
             stats.unsaved, stats.damaged);
  return 0;
}

/// Waits for the word to go, so that many processes start at one instant.
void wait_for_go() {
  std::string frame;
  (void)read_frame(Subprocess::kChildChannel, frame);
}

/// Becomes the user "nobody", for whom permissions hold.
bool drop_root() {
  if (::geteuid() != 0) return true;
  constexpr uid_t kNobody = 65534;
  return ::setgroups(0, nullptr) == 0 && ::setresgid(kNobody, kNobody, kNobody) == 0 &&
         ::setresuid(kNobody, kNobody, kNobody) == 0;
}

/// Fills a 16 MiB file system of our own at `mount_point` to the last block, then a store on it.
int fill_full_disk(const std::filesystem::path& mount_point) {
  if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
    return kCannotRun;
  }
  (void)::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
  if (::mount("tmpfs", mount_point.c_str(), "tmpfs", 0, "size=16m") != 0) return kCannotRun;
  {
    std::ofstream ballast(mount_point / "ballast", std::ios::binary);
    const std::string block(4096, 'x');
    while (ballast.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }
  const int status = fill(mount_point / "kernels", 3);
  if (status != 0) return status;
  return test::damage_in(mount_point / "kernels").empty() ? 0 : 3;
}

}  // namespace

int ingot_test_hidden_command(int argc, char** argv) {
  const std::string command = argv[1];
  const std::vector<std::string> arguments(argv + 2, argv + argc);
  if (command == jit::kCompileWorkerCommand) return jit::run_compile_worker(arguments);
  if (command == "fake-worker") {
    test::FakeCompiler compiler;
    return jit::serve_compiles(Subprocess::kChildChannel, compiler);
  }
  if (command == "exit-status-3") return 3;
  if (command == "fill") {
    wait_for_go();
    return fill(arguments[0], std::stoi(arguments[1]));
  }
  if (command == "fill-as-nobody") {
    if (!drop_root()) return kCannotRun;
    return fill(arguments[0], std::stoi(arguments[1]));
  }
  if (command == "fill-for-ever") {
    for (int round = 0;; ++round) {
      if (const int status = fill(arguments[0], round % 40 + 1); status != 0) return status;
    }
  }
  if (command == "import-as-nobody") {
    if (!drop_root()) return kCannotRun;
    const auto bundle = jit::read_bundle(arguments[0]);
    if (!bundle) {
      fmt::print(stderr, "{}\n", bundle.error().message);
      return 1;
    }
    const auto imported = jit::import_kernels(*bundle, jit::CubinCache(arguments[1]));
    if (!imported) {
      fmt::print(stderr, "{}\n", imported.error().message);
      return 1;
    }
    if (!test::damage_in(arguments[1]).empty()) return 3;
    return fill(arguments[1], std::stoi(arguments[2]));
  }
  if (command == "fill-full-disk") return fill_full_disk(arguments[0]);
  return -1;
}
