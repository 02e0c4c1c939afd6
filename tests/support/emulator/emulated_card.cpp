#include "tests/support/emulator/emulated_card.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/support/emulator/device.hpp"

namespace ingot::test {

void run_on_emulator(const cu::CUlaunchConfig& config, void* kernel, const void* arguments) {
  emulator::Launch launch{.grid = {config.gridDimX, config.gridDimY, config.gridDimZ},
                          .block = {config.blockDimX, config.blockDimY, config.blockDimZ},
                          .smem_bytes = config.sharedMemBytes,
                          .seed = 1};
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    if (config.attrs[i].id != cu::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    const auto& size = config.attrs[i].value.clusterDim;
    launch.cluster = {size.x, size.y, size.z};
  }
  using Entry = void (*)(const emulator::Launch*, const void*);
  reinterpret_cast<Entry>(kernel)(&launch, arguments);
}

Result<jit::CompiledKernel> EmulatorCompiler::compile(const jit::CompileJob& job) {
  const std::string stem = job.name.substr(0, job.name.rfind('.'));
  const auto params_end = job.source.find("#line 1 ");
  const std::string params = job.source.substr(0, params_end);
  const std::string id =
      fmt::format("{}_{:016x}", stem, XXH3_64bits(job.source.data(), job.source.size()));
  const auto source = folder_ / (id + ".cpp"), object = folder_ / (id + ".so");
  // Types and constants have names of their own in each object.
  std::ofstream(source) << fmt::format(
      "#define kernels kernels_{0}\n"
      "#include \"common/kv_layout.cuh\"\n"
      "#include \"tests/support/emulator/cuda.hpp\"\n"
      "{1}"
      "#include \"{2}.cuh\"\n"
      "template <class Args> void call(void (*kernel)(Args), const void* args) {{\n"
      "  kernel(*static_cast<const Args*>(args));\n"
      "}}\n"
      "template <class Args> constexpr unsigned long bytes_of(void (*)(Args)) {{\n"
      "  return sizeof(Args);\n"
      "}}\n"
      "extern \"C\" __attribute__((visibility(\"default\"))) const unsigned long arguments_bytes;\n"
      "const unsigned long arguments_bytes = bytes_of(&ingot::kernels::{2});\n"
      "extern \"C\" __attribute__((visibility(\"default\"))) void run_on_emulator(\n"
      "    const ingot::test::emulator::Launch* launch, const void* args) {{\n"
      "  ingot::test::emulator::run(*launch, [&] {{ call(&ingot::kernels::{2}, args); }});\n"
      "}}\n",
      id, params, stem);
  const std::string root = source_root_.string();
  const std::string command = fmt::format(
      "c++ -std=c++20 -O1 -w -fPIC -shared -fvisibility=hidden -fno-gnu-unique "
      "{3}-I {0}/tests/support/emulator -I {0} {1} -o {2} > {2}.log 2>&1",
      root, source.string(), object.string(),
      overlay_.empty() ? std::string() : "-I " + overlay_.string() + " ");
  if (std::system(command.c_str()) != 0) {
    std::ifstream log(object.string() + ".log");
    std::string text((std::istreambuf_iterator<char>(log)), {});
    return fail(ErrorCode::compile_failed, "compiling for the emulator: " + text);
  }
  std::ifstream file(object, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  jit::CompiledKernel kernel;
  kernel.cubin.resize(bytes.size());
  std::memcpy(kernel.cubin.data(), bytes.data(), bytes.size());
  return kernel;
}

std::unique_ptr<HostCard> emulated_card(std::uint64_t memory_bytes, int multiprocessors) {
  return std::make_unique<HostCard>(memory_bytes, multiprocessors, run_on_emulator);
}

}  // namespace ingot::test
