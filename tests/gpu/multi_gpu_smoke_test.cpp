// Two GPUs in one process, a thread per rank: a captured all-reduce, and flags in peer memory.
#include <fmt/format.h>

#include <array>
#include <barrier>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <exception>
#include <functional>
#include <span>
#include <thread>

#include "runtime/comm/comm.hpp"
#include "runtime/cuda/device_buffer.hpp"
#include "runtime/cuda/graph.hpp"
#include "runtime/cuda/launch.hpp"
#include "runtime/cuda/module.hpp"
#include "tests/gpu/smoke_kernels.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/skip.hpp"

using namespace ingot;

namespace {

constexpr int kRanks = 2;

/// Runs `body(rank)` in a thread per rank; rethrows the first rank's error. A body meets the others
/// at the barrier; one that fails leaves it, so that nobody waits for it.
void on_ranks(std::barrier<>& meet, const std::function<void(int)>& body) {
  std::array<std::exception_ptr, kRanks> errors{};
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(rank);
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
        meet.arrive_and_drop();
      });
    }
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace

TEST_CASE("NCCL adds over two ranks inside captured graphs", "[gpu][multi-gpu][smoke]") {
  const auto driver = test::driver_or_skip(kRanks);
  if (!driver) return;
  // NVLink multicast is not what is checked here, and not every shared host allows it.
  REQUIRE(::setenv("NCCL_NVLS_ENABLE", "0", 1) == 0);
  const auto nccl = value_or_throw(nccl::NcclApi::open(test::library_directories()));
  const nccl::ncclUniqueId id = nccl::Comm::make_id(*nccl);
  constexpr std::size_t kCount = 4096;  // one token's hidden state
  constexpr int kReplays = 100;
  std::barrier<> meet(kRanks);
  std::array<std::vector<float>, kRanks> results;
  std::array<float, kRanks> us{};

  on_ranks(meet, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    const cu::Context context = cu::Context::retain(driver, rank);
    const cu::Stream stream = cu::Stream::create(context);
    const auto from = cu::DeviceBuffer::allocate(context, kCount * sizeof(float));
    const auto to = cu::DeviceBuffer::allocate(context, kCount * sizeof(float));
    std::vector<float> values(kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      values[i] = static_cast<float>(i) + 0.5F * static_cast<float>(rank);
    from.copy_from_host(stream, std::as_bytes(std::span(values)));
    nccl::Comm comm = nccl::Comm::join(nccl, kRanks, id, rank);
    const auto all_reduce = [&] {
      comm.all_reduce_sum(from.as<float>(), to.as<float>(), kCount, nccl::ncclFloat32, stream);
    };
    all_reduce();  // NCCL connects its ranks at the first collective, which a capture forbids
    stream.synchronize();
    meet.arrive_and_wait();

    cu::Capture capture(stream);
    all_reduce();
    const cu::Graph graph = capture.finish();
    meet.arrive_and_wait();
    const cu::GraphExec exec = cu::GraphExec::instantiate(graph);
    exec.upload(stream);
    to.fill_bytes(stream, 0xff);
    stream.synchronize();
    meet.arrive_and_wait();  // nobody instantiates while a collective is in flight

    exec.launch(stream);
    results[at].resize(kCount);
    to.copy_to_host(stream, std::as_writable_bytes(std::span(results[at])));
    stream.synchronize();
    cu::Event begin = cu::Event::create(context, cu::Event::Timing::on);
    cu::Event end = cu::Event::create(context, cu::Event::Timing::on);
    meet.arrive_and_wait();
    begin.record(stream);
    for (int i = 0; i < kReplays; ++i)
      exec.launch(stream);
    end.record(stream);
    end.synchronize();
    us[at] = end.us_since(begin) / kReplays;
    comm.throw_if_failed();
    meet.arrive_and_wait();
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
    const cu::Context& context = contexts[at];
    context.make_current();
    const cu::Stream stream = cu::Stream::create(context);
    const auto kernel = test::compile_for(context, "smoke.cuh", test::kSmokeSource);
    const cu::Module module = cu::Module::load(context, kernel.cubin, "smoke");
    const cu::CUfunction function = module.function("exchange");
    memory[at] = cu::DeviceBuffer::allocate(context, (kReportAt + 2) * sizeof(unsigned));
    memory[at].fill_bytes(stream, 0);
    cu::Event begin = cu::Event::create(context, cu::Event::Timing::on);
    cu::Event end = cu::Event::create(context, cu::Event::Timing::on);
    stream.synchronize();
    meet.arrive_and_wait();

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
    end.synchronize();
    us[at] = end.us_since(begin) / kRounds;
    memory[at].copy_to_host(stream, std::as_writable_bytes(std::span(reports[at])),
                            kReportAt * sizeof(unsigned));
    stream.synchronize();
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
