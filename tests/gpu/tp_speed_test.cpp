#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

#include "runtime/comm/comm.hpp"
#include "runtime/cuda/graph.hpp"
#include "src/plan/step_cost.hpp"
#include "tests/gpu/device_model.hpp"
#include "tests/gpu/tp_ranks.hpp"

using namespace ingot;
using kernels::AllReduce, kernels::AllReduceWide;

namespace {

constexpr int kTp = 2;

/// How many GPUs there are, as a number of ranks; 0, after skip() said why, where there is one.
int gpu_ranks_or_skip() {
  const auto driver = test::driver_or_skip(2);
  if (!driver) return 0;
  int count = 0;
  driver->check(driver->cuDeviceGetCount(&count), "cuDeviceGetCount");
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(std::min(count, 8))));
}

/// Mean time of one of `count` equal exchanges of a graph that is launched `replays` times.
/// @param queue  (rank, number): queues one
template <class Queue>
float graph_us(test::PeerRanks& ranks, int count, int replays, const Queue& queue) {
  std::vector<float> us(static_cast<std::size_t>(ranks.count()));
  ranks.run([&](test::PeerRanks::Rank& rank, int r) {
    queue(rank, r);
    rank.stream.synchronize();
    ranks.meet();
    std::optional<cu::GraphExec> exec;
    {
      cu::Capture capture(rank.stream);
      for (int i = 0; i < count; ++i)
        queue(rank, r);
      exec = cu::GraphExec::instantiate(capture.finish());
    }
    ranks.meet();  // nobody records while an exchange is in flight
    auto begin = cu::Event::create(rank.context, cu::Event::Timing::on);
    auto end = cu::Event::create(rank.context, cu::Event::Timing::on);
    for (int i = 0; i < 3; ++i)
      exec->launch(rank.stream);
    begin.record(rank.stream);
    for (int i = 0; i < replays; ++i)
      exec->launch(rank.stream);
    end.record(rank.stream);
    end.synchronize();
    us[static_cast<std::size_t>(r)] = end.us_since(begin) / static_cast<float>(count * replays);
    rank.links.throw_if_stopped();
  });
  return *std::ranges::max_element(us);
}

}  // namespace

TEST_CASE("all-reduces over all GPUs beside NCCL's", "[gpu][multi-gpu][.speed]") {
  const int gpus = gpu_ranks_or_skip();
  if (gpus == 0) return;
  auto ranks = test::PeerRanks::open_or_skip(gpus, gpus);
  if (!ranks) return;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  REQUIRE(::setenv("NCCL_NVLS_ENABLE", "0", 1) == 0);
  REQUIRE(::setenv("NCCL_SOCKET_IFNAME", "lo", 0) == 0);
  const auto nccl = value_or_throw(nccl::NcclApi::open(test::library_directories()));
  std::vector<kernels::AllReduceProblem> problems;
  std::vector<kernels::AllReduceParams> params;
  std::vector<jit::Variant> variants;
  for (const int tokens : {1, 4, 16, 64, 256}) {
    for (const bool sums : {true, false}) {
      const kernels::AllReduceProblem problem{
          .ranks = gpus, .tokens = tokens, .has_sums = sums, .has_values = !sums};
      for (const int shots : {1, 2}) {
        for (const int threads : {256, 512}) {
          auto one = AllReduce::space(problem, ranks->limits()).default_candidate();
          one.SHOTS = shots;
          one.THREADS = threads;
          problems.push_back(problem);
          params.push_back(one);
          variants.push_back(test::variant_of<AllReduce>(one));
        }
      }
    }
  }
  const std::size_t narrow = variants.size();
  std::vector<kernels::AllReduceWideParams> wide_params;
  for (const int tokens : {256, 512, 1024, 4096}) {
    for (const bool sums : {true, false}) {
      const kernels::AllReduceProblem problem{
          .ranks = gpus, .tokens = tokens, .has_sums = sums, .has_values = true};
      for (const auto& one : AllReduceWide::space(problem, ranks->limits()).candidates()) {
        if (tokens < 4096 && one.BLOCKS < 64) continue;
        problems.push_back(problem);
        wide_params.push_back(one);
        variants.push_back(test::variant_of<AllReduceWide>(one));
      }
    }
  }
  ranks->load(variants);
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const nccl::ncclUniqueId id = nccl::Comm::make_id(*nccl);
  std::vector<std::optional<nccl::Comm>> comms(static_cast<std::size_t>(gpus));
  ranks->run([&](test::PeerRanks::Rank& rank, int r) {
    for (int i = 0; i < 3; ++i) {
      rank.buffers.push_back(cu::DeviceBuffer::allocate(rank.context, kBytes));
      rank.buffers.back().fill_bytes(rank.stream, 0);
    }
    rank.stream.synchronize();
    comms[static_cast<std::size_t>(r)].emplace(nccl::Comm::join(nccl, gpus, id, r));
  });
  const auto by_nccl = [&](std::size_t bytes, int count, int replays) {
    return graph_us(*ranks, count, replays, [&](test::PeerRanks::Rank& rank, int r) {
      comms[static_cast<std::size_t>(r)]->all_reduce_sum(rank.buffers[0].as<float>(),
                                                         rank.buffers[1].as<float>(), bytes / 4,
                                                         nccl::ncclFloat32, rank.stream);
    });
  };
  for (std::size_t i = 0; i < narrow; ++i) {
    const auto& problem = problems[i];
    const float us = graph_us(*ranks, 50, 20, [&](test::PeerRanks::Rank& rank, int) {
      auto args = rank.links.reduce_args();
      args.sums = rank.buffers[0].as<float>();
      args.values = rank.buffers[0].as<kernels::bf16>();
      args.out = rank.buffers[1].as<kernels::bf16>();
      args.tokens = problem.tokens;
      args.hidden = problem.hidden;
      rank.kernels[i].launch(rank.stream, AllReduce::launch_shape(problem, params[i]), args);
    });
    fmt::print("all_reduce {:3} tokens {}: {} shot(s), {} threads, {} blocks: {:.2f} us\n",
               problem.tokens, problem.has_sums ? "fp32" : "bf16", params[i].SHOTS,
               params[i].THREADS, AllReduce::launch_shape(problem, params[i]).grid.x, us);
  }
  std::vector<kernels::bf16*> outs;
  for (int r = 0; r < gpus; ++r)
    outs.push_back(ranks->of(r).buffers[1].as<kernels::bf16>());
  for (std::size_t i = narrow; i < problems.size(); ++i) {
    const auto& problem = problems[i];
    const auto& one = wide_params[i - narrow];
    const auto shape = AllReduceWide::launch_shape(problem, one);
    const float us = graph_us(*ranks, 10, 10, [&](test::PeerRanks::Rank& rank, int) {
      auto args = rank.links.wide_reduce_args();
      args.sums = rank.buffers[0].as<float>();
      args.values = rank.buffers[2].as<kernels::bf16>();
      std::ranges::copy(outs, args.out);
      args.tokens = problem.tokens;
      args.hidden = problem.hidden;
      rank.kernels[i].launch(rank.stream, shape, args);
    });
    fmt::print("all_reduce_wide {:4} tokens {}: {} threads, {} blocks: {:.1f} us\n", problem.tokens,
               problem.has_sums ? "fp32" : "bf16", one.THREADS, shape.grid.x, us);
  }
  for (const int tokens : {1, 4, 16, 64, 256, 512, 1024}) {
    fmt::print("NCCL {} of fp32, {:3} tokens: {:.2f} us\n", nccl->version_text(), tokens,
               by_nccl(static_cast<std::size_t>(tokens) * 16384, 50, 20));
  }
  const float us = by_nccl(kBytes, 2, 10);
  fmt::print("NCCL of fp32 over {} GPUs, 64 MB: {:.1f} us, bus bandwidth {:.0f} GB/s\n", gpus, us,
             2.0 * (gpus - 1) / gpus * static_cast<double>(kBytes) / us / 1e3);
  ranks->run([&](test::PeerRanks::Rank&, int r) { comms[static_cast<std::size_t>(r)]->finish(); });
}

// Prints where the time of a step goes.
TEST_CASE("a decode step of V4-Flash on two GPUs", "[gpu][multi-gpu][.speed]") {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  ModelConfig config = value_or_throw(read_model_config(
      test::golden_dir().parent_path().parent_path() / "configs/deepseek-v4-flash/config.json"));
  config.num_mtp_layers = 0;
  config.draft = DraftKind::none;
  config.compress_ratios.resize(static_cast<std::size_t>(config.num_layers));
  const auto engine = test::synthetic_engine(
      config, {.max_context = 8192, .max_sequences = 64, .context_tokens = 64 * 8192}, kTp);
  if (!engine) return;
  engine->fill_context();
  std::vector<SequenceId> sequences;
  for (const int batch : {1, 16, 64}) {
    while (static_cast<int>(sequences.size()) < batch)
      sequences.push_back(engine->create_filled(4000));
    const DecodeTiming timing = engine->time_decode(sequences, 20);
    const double bytes = weight_reads(config, kTp).bytes(timing.experts_read) +
                         batch * static_cast<double>(context_reads(config, 4000));
    const double floor_us = bytes / 4.45e6;  // the cold-read rate of large reads on an H200
    fmt::print(
        "batch {}, context 4000, {} layers, tp {}: {:.0f} us a step{}, {} launches, {:.1f} "
        "tokens/s; a rank reads {:.2f} GB, floor {:.0f} us, {:.0f} % of it; {:.1f} experts a "
        "layer\n",
        batch, config.num_layers, kTp, timing.step_us, timing.from_graph ? " from a graph" : "",
        timing.launches, batch * 1e6 / timing.step_us, bytes / 1e9, floor_us,
        100 * floor_us / timing.step_us, timing.experts_read);
    double sum = 0;
    for (const auto& part : timing.parts)
      sum += part.us;
    for (const auto& part : timing.parts)
      fmt::print("  {:32} {:3} x {:7.2f} us = {:4.1f} %\n", part.name, part.launches,
                 part.us / part.launches, 100 * part.us / sum);
    CHECK(timing.from_graph);
  }
}
