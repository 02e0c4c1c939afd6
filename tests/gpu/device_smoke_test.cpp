// What everything else on a GPU rests on: the libraries open, a cubin of ours runs, graphs keep the
// order that programmatic dependent launch promises, clusters launch.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <span>

#include "runtime/comm/nccl_api.hpp"
#include "runtime/cuda/device_buffer.hpp"
#include "runtime/cuda/graph.hpp"
#include "runtime/cuda/launch.hpp"
#include "runtime/cuda/module.hpp"
#include "runtime/jit/nvrtc_api.hpp"
#include "tests/gpu/smoke_kernels.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/skip.hpp"

using namespace ingot;

namespace {

template <class T>
void upload(const cu::Stream& stream, const cu::DeviceBuffer& to, const std::vector<T>& values) {
  to.copy_from_host(stream, std::as_bytes(std::span(values)));
}

template <class T>
std::vector<T> download(const cu::Stream& stream, const cu::DeviceBuffer& from) {
  std::vector<T> values(from.bytes() / sizeof(T));
  from.copy_to_host(stream, std::as_writable_bytes(std::span(values)));
  stream.synchronize();
  return values;
}

cu::Module load_smoke(const cu::Context& context) {
  const auto kernel = test::compile_for(context, "smoke.cuh", test::kSmokeSource);
  return cu::Module::load(context, kernel.cubin, "smoke");
}

constexpr unsigned kChainBlocks = 264;  // two for every multiprocessor of an H200
constexpr int kChainValues = static_cast<int>(kChainBlocks) * 256 - 7;

struct ChainRun {
  std::vector<unsigned> values;
  std::size_t nodes = 0;
  std::size_t programmatic_edges = 0;
  float us_per_link = 0;
};

/// @param replays  that are timed, after the one that is checked
ChainRun run_chain(const cu::Context& context, const cu::Module& module, int links, int replays,
                   bool programmatic) {
  const cu::Stream stream = cu::Stream::create(context);
  const auto buffer = cu::DeviceBuffer::allocate(context, kChainValues * sizeof(unsigned));
  std::vector<unsigned> start(kChainValues);
  for (int i = 0; i < kChainValues; ++i)
    start[static_cast<std::size_t>(i)] = static_cast<unsigned>(i);
  upload(stream, buffer, start);
  stream.synchronize();

  const cu::CUfunction function = module.function("chain_step");
  const test::StepArgs args{buffer.as<unsigned>(), kChainValues};
  cu::Capture capture(stream);
  for (int link = 0; link < links; ++link) {
    cu::launch(stream, function,
               {.grid = {kChainBlocks}, .block = {256}, .programmatic = programmatic && link > 0},
               &args);
  }
  const cu::Graph graph = capture.finish();
  const cu::GraphExec exec = cu::GraphExec::instantiate(graph);
  exec.upload(stream);
  exec.launch(stream);

  ChainRun run{.values = download<unsigned>(stream, buffer),
               .nodes = graph.node_count(),
               .programmatic_edges = graph.programmatic_edge_count()};
  if (replays == 0) return run;
  cu::Event begin = cu::Event::create(context, cu::Event::Timing::on);
  cu::Event end = cu::Event::create(context, cu::Event::Timing::on);
  begin.record(stream);
  for (int i = 0; i < replays; ++i)
    exec.launch(stream);
  end.record(stream);
  end.synchronize();
  run.us_per_link = end.us_since(begin) / static_cast<float>(replays * links);
  return run;
}

void check_chain(int links, int replays) {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Module module = load_smoke(context);
  std::vector<unsigned> expected(kChainValues);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] = static_cast<unsigned>(i);
    for (int link = 0; link < links; ++link)
      expected[i] = 3U * expected[i] + 1U;
  }

  const ChainRun plain = run_chain(context, module, links, replays, false);
  CHECK(plain.values == expected);
  CHECK(plain.nodes == static_cast<std::size_t>(links));
  CHECK(plain.programmatic_edges == 0);
  if (replays > 0) {
    fmt::print("smoke: graph of {} kernels, plain edges: {:.2f} us per kernel\n", plain.nodes,
               plain.us_per_link);
  }
  if (context.device().compute_major < 9) return;  // programmatic launch came with sm_90
  const ChainRun early = run_chain(context, module, links, replays, true);
  CHECK(early.values == expected);
  CHECK(early.programmatic_edges == static_cast<std::size_t>(links) - 1);
  if (replays > 0) {
    fmt::print("smoke: graph of {} kernels, {} programmatic edges: {:.2f} us per kernel\n",
               early.nodes, early.programmatic_edges, early.us_per_link);
  }
}

}  // namespace

TEST_CASE("the driver, NVRTC and NCCL open and name themselves", "[gpu][smoke][sanitize]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  fmt::print("smoke: driver {} CUDA {}\n", driver->path().string(), driver->version());
  for (const cu::DeviceInfo& device : cu::list_devices(*driver)) {
    fmt::print(
        "smoke: device {} {} sm_{}{} {} SMs, {} MiB, L2 {} KiB, smem {}/{} B per block/SM, {} "
        "registers, clusters {}, bus {}\n",
        device.ordinal, device.name, device.compute_major, device.compute_minor, device.sm_count,
        device.memory_bytes >> 20, device.l2_bytes >> 10, device.smem_per_block_bytes,
        device.smem_per_sm_bytes, device.registers_per_sm, device.has_clusters, device.bus_id);
    CHECK(device.sm_count > 0);
    CHECK(device.smem_per_block_bytes >= 48 * 1024);
    CHECK(device.uuid.size() == 32);
  }
  const auto nvrtc_files = jit::find_nvrtc(test::library_directories());
  REQUIRE(nvrtc_files);
  const auto nvrtc = jit::NvrtcApi::open(*nvrtc_files);
  REQUIRE(nvrtc);
  fmt::print("smoke: NVRTC {} {} build {} archs {}\n", nvrtc_files->library.string(),
             nvrtc_files->version, nvrtc_files->build, fmt::join((*nvrtc)->supported_archs(), " "));
  int major = 0;
  int minor = 0;
  CHECK((*nvrtc)->nvrtcVersion(&major, &minor) == jit::NVRTC_SUCCESS);
  CHECK(nvrtc_files->version == fmt::format("{}.{}", major, minor));
  const auto nccl = nccl::NcclApi::open(test::library_directories());
  REQUIRE(nccl);
  fmt::print("smoke: NCCL {} {}\n", (*nccl)->path().string(), (*nccl)->version_text());
}

TEST_CASE("a kernel compiled by NVRTC for this card sums blocks exactly",
          "[gpu][smoke][sanitize]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const auto start = std::chrono::steady_clock::now();
  const auto kernel = test::compile_for(context, "smoke.cuh", test::kSmokeSource);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  fmt::print(
      "smoke: compiled {} bytes of cubin in {:.0f} ms with the library's opening, {:.0f} "
      "without; at most {} registers\n",
      kernel.cubin.size(), taken.count(), kernel.seconds * 1e3, kernel.resources.registers);
  CHECK_FALSE(kernel.resources.spills());

  const cu::Module module = cu::Module::load(context, kernel.cubin, "smoke");
  const cu::Stream stream = cu::Stream::create(context);
  constexpr unsigned kBlocks = 1000;
  std::vector<float> values(kBlocks * 256);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i % 97);
  const auto from = cu::DeviceBuffer::allocate(context, values.size() * sizeof(float));
  const auto to = cu::DeviceBuffer::allocate(context, kBlocks * sizeof(float));
  to.fill_bytes(stream, 0xff);  // NaN: a block that writes nothing is seen
  upload(stream, from, values);
  const test::BlockSumArgs args{from.as<float>(), to.as<float>()};
  cu::launch(stream, module.function("block_sum"), {.grid = {kBlocks}, .block = {256}}, &args);
  const auto sums = download<float>(stream, to);
  for (std::size_t block = 0; block < kBlocks; ++block) {
    float expected = 0;  // whole numbers below 2^24: the order of the sum does not matter
    for (std::size_t i = 0; i < 256; ++i)
      expected += values[block * 256 + i];
    REQUIRE(sums[block] == expected);
  }
}

TEST_CASE("a function that a module lacks and a device that is not there are named",
          "[gpu][smoke]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Module module = load_smoke(context);
  CHECK_THROWS_WITH(module.function("absent"),
                    Catch::Contains("smoke") && Catch::Contains("absent"));
  CHECK_THROWS_WITH(cu::Context::retain(driver, 99), Catch::Contains("device 99 does not exist"));
  CHECK_THROWS_WITH(cu::Module::load(context, std::as_bytes(std::span("no cubin")), "torn"),
                    Catch::Contains("loading the kernel torn"));
  CHECK_THROWS_WITH(cu::DeviceBuffer::allocate(context, std::size_t{1} << 50),
                    Catch::Contains("bytes are free"));
}

TEST_CASE("a graph of programmatic dependent launches runs in order", "[gpu][smoke]") {
  check_chain(64, 20);
}

// racecheck makes a launch take milliseconds: the long chain and its replays are 2,700 of them.
TEST_CASE("a short graph of programmatic dependent launches runs in order",
          "[gpu][smoke][sanitize]") {
  check_chain(8, 0);
}

TEST_CASE("blocks of a cluster read each other's shared memory", "[gpu][smoke][sanitize]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  if (!context.device().has_clusters && test::skip("this card has no clusters")) return;
  const cu::Module module = load_smoke(context);
  const cu::Stream stream = cu::Stream::create(context);
  constexpr unsigned kBlocks = 64;
  const auto sums = cu::DeviceBuffer::allocate(context, kBlocks * sizeof(unsigned));
  sums.fill_bytes(stream, 0xff);
  const test::ClusterArgs args{sums.as<unsigned>()};
  cu::launch(stream, module.function("cluster_pair"),
             {.grid = {kBlocks}, .block = {32}, .cluster = {2, 1, 1}}, &args);
  const auto found = download<unsigned>(stream, sums);
  for (unsigned block = 0; block < kBlocks; ++block) {
    CHECK(found[block] == (block / 2 * 2 + 1) + (block / 2 * 2 + 2));
  }
  fmt::print("smoke: {} blocks in clusters of 2 summed over distributed shared memory\n", kBlocks);
}
