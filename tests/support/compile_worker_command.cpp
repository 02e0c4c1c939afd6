// Lets a test program be its own compile worker (jit::CompilePool::with_nvrtc runs it again).
#include <string>
#include <vector>

#include "runtime/jit/compile_worker.hpp"

int ingot_test_hidden_command(int argc, char** argv) {
  if (std::string(argv[1]) != ingot::jit::kCompileWorkerCommand) return -1;
  return ingot::jit::run_compile_worker(std::vector<std::string>(argv + 2, argv + argc));
}
