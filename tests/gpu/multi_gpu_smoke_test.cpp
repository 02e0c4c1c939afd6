// Two GPUs in one process, a thread per rank: a captured all-reduce, and flags in peer memory.
#include <fmt/format.h>
#include <ifaddrs.h>

#include <array>
#include <barrier>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <thread>

#include "runtime/comm/comm.hpp"
#include "runtime/cuda/device_buffer.hpp"
#include "runtime/cuda/graph.hpp"
#include "runtime/cuda/launch.hpp"
#include "runtime/cuda/module.hpp"
#include "tests/gpu/smoke_kernels.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/notes.hpp"
#include "tests/support/skip.hpp"

using namespace ingot;

namespace {

constexpr int kRanks = 2;

/// Runs `body(rank)` in a thread per rank. A rank that fails says so at once and leaves the
/// barrier, so that nobody waits for it there; then the first rank's error is thrown.
void on_ranks(std::barrier<>& meet, const std::function<void(int)>& body) {
  std::array<std::exception_ptr, kRanks> errors{};
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(rank);
          test::note(rank, "done");
        } catch (const std::exception& error) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
          fmt::print("rank {} failed: {}\n", rank, error.what());
          std::fflush(stdout);
        }
        meet.arrive_and_drop();
      });
    }
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

/// Waits until the stream is done, but not for ever: a peer that failed never answers.
void await(const cu::Context& context, const cu::Stream& stream) {
  constexpr std::chrono::seconds kPatience{5};
  cu::Event event = cu::Event::create(context, cu::Event::Timing::off);
  event.record(stream);
  const auto start = std::chrono::steady_clock::now();
  while (!event.is_done()) {
    if (std::chrono::steady_clock::now() - start > kPatience) {
      throw EngineError(ErrorCode::cuda, "the stream is not done after 5 seconds");
    }
    std::this_thread::yield();
  }
}

std::string network_interfaces() {
  std::string names;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "unknown";
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (names.find(one->ifa_name) == std::string::npos) names += fmt::format(" {}", one->ifa_name);
  }
  ::freeifaddrs(list);
  return names;
}

}  // namespace

TEST_CASE("NCCL adds over two ranks inside captured graphs", "[gpu][multi-gpu][smoke]") {
  const auto driver = test::driver_or_skip(kRanks);
  if (!driver) return;
  // NVLink multicast is not what is checked here, and not every shared host allows it. All ranks
  // are in this process, so the loopback interface is enough to meet.
  REQUIRE(::setenv("NCCL_NVLS_ENABLE", "0", 1) == 0);
  REQUIRE(::setenv("NCCL_DEBUG", "WARN", 0) == 0);
  REQUIRE(::setenv("NCCL_SOCKET_IFNAME", "lo", 0) == 0);
  fmt::print("smoke: network interfaces:{}\n", network_interfaces());
  std::fflush(stdout);
  const auto nccl = value_or_throw(nccl::NcclApi::open(test::library_directories()));
  test::note(kRanks, "main: making the communicator's id");
  const nccl::ncclUniqueId id = nccl::Comm::make_id(*nccl);
  test::note(kRanks, "main: waiting for the ranks");
  constexpr std::size_t kCount = 4096;  // one token's hidden state
  constexpr int kReplays = 100;
  std::barrier<> meet(kRanks);
  std::array<std::vector<float>, kRanks> results;
  std::array<float, kRanks> us{};

  on_ranks(meet, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    test::note(rank, "context and memory");
    const cu::Context context = cu::Context::retain(driver, rank);
    const cu::Stream stream = cu::Stream::create(context);
    const auto from = cu::DeviceBuffer::allocate(context, kCount * sizeof(float));
    const auto to = cu::DeviceBuffer::allocate(context, kCount * sizeof(float));
    std::vector<float> values(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      values[i] = static_cast<float>(i) + 0.5F * static_cast<float>(rank);
    }
    from.copy_from_host(stream, std::as_bytes(std::span(values)));
    await(context, stream);
    test::note(rank, "joining the communicator");
    nccl::Comm comm = nccl::Comm::join(nccl, kRanks, id, rank);
    const auto all_reduce = [&] {
      comm.all_reduce_sum(from.as<float>(), to.as<float>(), kCount, nccl::ncclFloat32, stream);
    };
    test::note(rank, "first all-reduce");
    all_reduce();  // NCCL connects its ranks at the first collective, which a capture forbids
    await(context, stream);
    meet.arrive_and_wait();

    test::note(rank, "capturing");
    std::optional<cu::Graph> graph;
    {
      cu::Capture capture(stream);
      all_reduce();
      graph = capture.finish();
    }
    meet.arrive_and_wait();
    test::note(rank, "instantiating");
    std::optional<cu::GraphExec> exec = cu::GraphExec::instantiate(*graph);
    exec->upload(stream);
    to.fill_bytes(stream, 0xff);
    await(context, stream);
    meet.arrive_and_wait();  // nobody instantiates while a collective is in flight

    test::note(rank, "replaying");
    exec->launch(stream);
    await(context, stream);
    results[at].resize(kCount);
    to.copy_to_host(stream, std::as_writable_bytes(std::span(results[at])));
    await(context, stream);
    cu::Event begin = cu::Event::create(context, cu::Event::Timing::on);
    cu::Event end = cu::Event::create(context, cu::Event::Timing::on);
    meet.arrive_and_wait();
    begin.record(stream);
    for (int i = 0; i < kReplays; ++i)
      exec->launch(stream);
    end.record(stream);
    await(context, stream);
    us[at] = end.us_since(begin) / kReplays;
    comm.throw_if_failed();
    // NCCL waits for the graphs that hold its collectives before a communicator ends.
    test::note(rank, "destroying the graphs");
    exec.reset();
    graph.reset();
    meet.arrive_and_wait();
    test::note(rank, "finishing the communicator");
    comm.finish();
  });

  for (std::size_t i = 0; i < kCount; ++i) {
    REQUIRE(results[0][i] == 2.0F * static_cast<float>(i) + 0.5F);
    REQUIRE(results[1][i] == results[0][i]);
  }
  fmt::print(
      "smoke: NCCL {} all-reduce of {} floats over {} ranks, captured: {:.1f} / {:.1f} us "
      "per graph launch\n",
      nccl->version_text(), kCount, kRanks, us[0], us[1]);
}

TEST_CASE("two GPUs exchange words and flags in each other's memory", "[gpu][multi-gpu][smoke]") {
  const auto driver = test::driver_or_skip(kRanks);
  if (!driver) return;
  std::vector<cu::Context> contexts;
  for (int rank = 0; rank < kRanks; ++rank)
    contexts.push_back(cu::Context::retain(driver, rank));
  if ((!contexts[0].can_access(contexts[1]) || !contexts[1].can_access(contexts[0])) &&
      test::skip("the two GPUs cannot reach each other's memory")) {
    return;
  }
  contexts[0].enable_peer_access(contexts[1]);
  contexts[1].enable_peer_access(contexts[0]);
  const auto kernel = test::compile_for(contexts[0], "smoke.cuh", test::kSmokeSource);

  constexpr unsigned kRounds = 2000;
  constexpr std::size_t kInboxWords = 2 * 128;
  constexpr std::size_t kFlagAt = kInboxWords;
  constexpr std::size_t kReportAt = kInboxWords + 32;
  std::array<cu::DeviceBuffer, kRanks> memory;
  std::array<std::array<unsigned, 2>, kRanks> reports{};
  std::array<float, kRanks> us{};
  std::barrier<> meet(kRanks);
  on_ranks(meet, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    test::note(rank, "module and memory");
    const cu::Context& context = contexts[at];
    context.make_current();
    const cu::Stream stream = cu::Stream::create(context);
    const cu::Module module = cu::Module::load(context, kernel.cubin, "smoke");
    const cu::CUfunction function = module.function("exchange");
    memory[at] = cu::DeviceBuffer::allocate(context, (kReportAt + 2) * sizeof(unsigned));
    memory[at].fill_bytes(stream, 0);
    cu::Event begin = cu::Event::create(context, cu::Event::Timing::on);
    cu::Event end = cu::Event::create(context, cu::Event::Timing::on);
    await(context, stream);
    meet.arrive_and_wait();

    test::note(rank, "exchanging");
    unsigned* mine = memory[at].as<unsigned>();
    unsigned* peer = memory[at ^ 1].as<unsigned>();
    const test::ExchangeArgs args{.my_inbox = mine,
                                  .my_flag = mine + kFlagAt,
                                  .peer_inbox = peer,
                                  .peer_flag = peer + kFlagAt,
                                  .report = mine + kReportAt,
                                  .rank = static_cast<std::uint32_t>(rank),
                                  .rounds = kRounds};
    begin.record(stream);
    cu::launch(stream, function, {.grid = {1}, .block = {128}}, &args);
    end.record(stream);
    await(context, stream);
    us[at] = end.us_since(begin) / kRounds;
    memory[at].copy_to_host(stream, std::as_writable_bytes(std::span(reports[at])),
                            kReportAt * sizeof(unsigned));
    await(context, stream);
    meet.arrive_and_wait();  // the peer may still write into our memory
  });
  for (const auto& report : reports) {
    CHECK(report[0] == kRounds);
    CHECK(report[1] == 0);
  }
  fmt::print("smoke: peer flags over {} rounds of 128 words: {:.2f} / {:.2f} us per round trip\n",
             kRounds, us[0], us[1]);
  for (std::size_t at = 0; at < kRanks; ++at) {
    contexts[at].make_current();
    memory[at] = {};
  }
}
