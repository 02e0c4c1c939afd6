// The children of this suite's tests are this program run again.
#include <string>
#include <vector>

#include "runtime/base/subprocess.hpp"
#include "runtime/jit/compile_worker.hpp"
#include "tests/runtime/jit/fake_compiler.hpp"

int ingot_test_hidden_command(int argc, char** argv) {
  using namespace ingot;
  const std::string command = argv[1];
  const std::vector<std::string> arguments(argv + 2, argv + argc);
  if (command == jit::kCompileWorkerCommand) return jit::run_compile_worker(arguments);
  if (command == "fake-worker") {
    test::FakeCompiler compiler;
    return jit::serve_compiles(Subprocess::kChildChannel, compiler);
  }
  if (command == "exit-status-3") return 3;
  return -1;
}
