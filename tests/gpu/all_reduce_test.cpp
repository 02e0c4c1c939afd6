#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <span>
#include <type_traits>

#include "src/reference/numerics.hpp"
#include "tests/gpu/tp_ranks.hpp"

using namespace ingot;
using kernels::AllReduce, kernels::AllReduceWide;

namespace {

constexpr int kSets = 8;       // inputs, by turns: what an earlier round left is never right
constexpr int kRounds = 1000;  // of each size, of all_reduce

/// Small whole numbers and halves: bf16 has them exactly, and sums need rounding.
float value_of(int rank, int set, std::int64_t i) {
  const auto mixed = static_cast<std::uint64_t>(i * 2 + rank) * 0x9e3779b97f4a7c15ULL +
                     static_cast<std::uint64_t>(set) * 0xd1b54a32d192ed03ULL;
  return static_cast<float>(static_cast<int>(mixed >> 56) - 128) * 0.5F;
}

/// What a rank says and where the sum goes; of an all-reduce that writes into others' memory,
/// `outs` are all ranks'.
template <class Args>
Args args_of(const test::PeerRanks::Rank& rank, std::size_t set,
             std::span<kernels::bf16* const> outs) {
  const auto fill = [&](auto args) {
    args.sums = rank.buffers[set * 3].template as<float>();
    args.values = rank.buffers[set * 3 + 1].template as<kernels::bf16>();
    return args;
  };
  if constexpr (std::is_same_v<Args, kernels::AllReduceArgs>) {
    auto args = fill(rank.links.reduce_args());
    args.out = rank.buffers[set * 3 + 2].template as<kernels::bf16>();
    return args;
  } else {
    auto args = fill(rank.links.wide_reduce_args());
    std::ranges::copy(outs, args.out);
    return args;
  }
}

template <class Family>
void check_sums(test::PeerRanks& ranks, const kernels::AllReduceProblem& problem,
                std::size_t kernel, const typename Family::Params& params, int rounds,
                bool programmatic = true) {
  const std::int64_t elements = std::int64_t{problem.tokens} * problem.hidden;
  CAPTURE(Family::kStem, elements, problem.has_sums, problem.has_values);
  const auto count = static_cast<std::size_t>(elements);
  std::vector<std::array<std::vector<std::uint16_t>, kSets>> results(
      static_cast<std::size_t>(ranks.count()));
  std::array<std::vector<kernels::bf16*>, kSets> outs;  // of every rank
  outs.fill(std::vector<kernels::bf16*>(static_cast<std::size_t>(ranks.count())));
  ranks.run([&](test::PeerRanks::Rank& rank, int r) {
    rank.buffers.clear();
    std::vector<float> sums(count);
    std::vector<std::uint16_t> values(count);
    for (int set = 0; set < kSets; ++set) {
      for (std::int64_t i = 0; i < elements; ++i) {
        const float value = value_of(r, set, i);
        sums[static_cast<std::size_t>(i)] = value * 0.125F;
        values[static_cast<std::size_t>(i)] =
            static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
      }
      for (const auto bytes : {std::as_bytes(std::span(sums)), std::as_bytes(std::span(values))}) {
        rank.buffers.push_back(cu::DeviceBuffer::allocate(rank.context, bytes.size()));
        rank.buffers.back().copy_from_host(rank.stream, bytes);
        rank.stream.synchronize();
      }
      rank.buffers.push_back(cu::DeviceBuffer::allocate(rank.context, 2 * count));
      outs[static_cast<std::size_t>(set)][static_cast<std::size_t>(r)] =
          rank.buffers.back().as<kernels::bf16>();
    }
    ranks.meet();  // nobody allocates while an exchange is in flight
    auto shape = Family::launch_shape(problem, params);
    shape.programmatic = programmatic;
    for (int round = 0; round < rounds; ++round) {
      const auto set = static_cast<std::size_t>(round % kSets);
      auto args = args_of<typename Family::Args>(rank, set, outs[set]);
      args.tokens = problem.tokens;
      args.hidden = problem.hidden;
      rank.kernels[kernel].launch(rank.stream, shape, args);
    }
    for (int set = 0; set < kSets; ++set) {
      auto& result = results[static_cast<std::size_t>(r)][static_cast<std::size_t>(set)];
      result.resize(count);
      rank.buffers[static_cast<std::size_t>(set) * 3 + 2].copy_to_host(
          rank.stream, std::as_writable_bytes(std::span(result)));
    }
    rank.stream.synchronize();
    rank.links.throw_if_stopped();
  });
  for (int set = 0; set < kSets; ++set) {
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < elements; ++i) {
      float total = 0;
      for (int r = 0; r < ranks.count(); ++r) {
        const float value = value_of(r, set, i);
        total += (problem.has_sums ? value * 0.125F : 0.0F) + (problem.has_values ? value : 0.0F);
      }
      const auto expected = reference::bf16_bits(total);
      const auto at = static_cast<std::size_t>(i);
      wrong += std::ranges::any_of(results, [&](const auto& of_rank) {
        return of_rank[static_cast<std::size_t>(set)][at] != expected;
      });
    }
    CHECK(wrong == 0);
  }
}

void check_all(int count, int gpus) {
  auto ranks = test::PeerRanks::open_or_skip(count, gpus);
  if (!ranks) return;
  std::vector<kernels::AllReduceProblem> problems;
  for (const auto& [has_sums, has_values] : {std::pair{true, true}, {true, false}, {false, true}}) {
    for (const auto& [hidden, tokens] :
         {std::pair{4, 1}, {8, 1}, {264, 7}, {4096, 1}, {4096, 16}, {8192, 32}, {8192, 256}}) {
      problems.push_back({.ranks = count,
                          .hidden = hidden,
                          .tokens = tokens,
                          .has_sums = has_sums,
                          .has_values = has_values});
    }
  }
  // On one GPU all blocks of both ranks must find room beside each other: 64 of 256 threads do.
  const auto params = ranks->load(problems);
  for (std::size_t i = 0; i < problems.size(); ++i)
    check_sums<AllReduce>(*ranks, problems[i], i, params[i], kRounds);
  fmt::print("all_reduce: {} problems of 16 B to 8 MiB by {} ranks on {} GPU(s), {} rounds each\n",
             problems.size(), count, gpus, kRounds);
}

}  // namespace

/// Many tokens at once, and few, for which it is not meant.
void check_wide(int count, int gpus) {
  auto ranks = test::PeerRanks::open_or_skip(count, gpus);
  if (!ranks) return;
  std::vector<kernels::AllReduceProblem> problems;
  for (const auto& [has_sums, has_values] : {std::pair{true, true}, {true, false}, {false, true}}) {
    for (const auto& [hidden, tokens] : {std::pair{8, 1}, {264, 7}, {4096, 512}, {4096, 4096}}) {
      problems.push_back({.ranks = count,
                          .hidden = hidden,
                          .tokens = tokens,
                          .has_sums = has_sums,
                          .has_values = has_values});
    }
  }
  const auto params = ranks->load<AllReduceWide>(problems);
  constexpr int kWideRounds = 50;
  // Launches that begin early would take the room of the other rank's on the same GPU.
  for (std::size_t i = 0; i < problems.size(); ++i)
    check_sums<AllReduceWide>(*ranks, problems[i], i, params[i], kWideRounds, gpus == count);
  fmt::print("all_reduce_wide: {} problems of 32 B to 64 MiB by {} ranks on {} GPU(s), {} rounds\n",
             problems.size(), count, gpus, kWideRounds);
}

TEST_CASE("two ranks on one GPU add many tokens to the bit", "[gpu][tp]") {
  check_wide(2, 1);
}

TEST_CASE("two ranks on two GPUs add many tokens to the bit", "[gpu][multi-gpu][tp]") {
  check_wide(2, 2);
}

TEST_CASE("four ranks on four GPUs add many tokens to the bit", "[gpu][multi-gpu][tp]") {
  check_wide(4, 4);
}

TEST_CASE("eight ranks on eight GPUs add many tokens to the bit", "[gpu][multi-gpu][tp]") {
  check_wide(8, 8);
}

TEST_CASE("two ranks on one GPU add to the bit, a thousand times", "[gpu][tp]") {
  check_all(2, 1);
}

TEST_CASE("two ranks on two GPUs add to the bit, a thousand times", "[gpu][multi-gpu][tp]") {
  check_all(2, 2);
}

TEST_CASE("four ranks on four GPUs add to the bit, a thousand times", "[gpu][multi-gpu][tp]") {
  check_all(4, 4);
}

TEST_CASE("eight ranks on eight GPUs add to the bit, a thousand times", "[gpu][multi-gpu][tp]") {
  check_all(8, 8);
}

TEST_CASE("a rank whose peer never adds many tokens gives up by the clock", "[gpu][tp]") {
  auto ranks = test::PeerRanks::open_or_skip(2, 1);
  if (!ranks) return;
  const kernels::AllReduceProblem problem{.ranks = 2, .tokens = 512, .has_sums = true};
  const auto params = ranks->load<AllReduceWide>({problem});
  CHECK_THROWS_WITH(ranks->run([&](test::PeerRanks::Rank& rank, int r) {
    if (r == 1) return;
    auto args = rank.links.wide_reduce_args();
    rank.buffers.push_back(cu::DeviceBuffer::allocate(rank.context, 512 * 4096 * 8));
    args.sums = rank.buffers.back().as<float>();
    std::fill_n(args.out, 2, rank.buffers.back().as<kernels::bf16>());
    args.tokens = problem.tokens;
    args.hidden = problem.hidden;
    for (int i = 0; i < 20; ++i)  // only the first waits the whole time
      rank.kernels[0].launch(rank.stream, AllReduceWide::launch_shape(problem, params[0]), args);
    rank.stream.synchronize();
    rank.links.throw_if_stopped();
  }),
                    Catch::Contains("did not answer"));
}

TEST_CASE("a rank whose peer never comes gives up by the clock", "[gpu][tp]") {
  auto ranks = test::PeerRanks::open_or_skip(2, 1);
  if (!ranks) return;
  const kernels::AllReduceProblem problem{.ranks = 2, .has_sums = true};
  const auto params = ranks->load({problem});
  CHECK_THROWS_WITH(ranks->run([&](test::PeerRanks::Rank& rank, int r) {
    if (r == 1) return;
    auto args = rank.links.reduce_args();
    rank.buffers.push_back(cu::DeviceBuffer::allocate(rank.context, 4096 * 8));
    args.sums = rank.buffers.back().as<float>();
    args.out = rank.buffers.back().as<kernels::bf16>();
    args.tokens = 1;
    args.hidden = 4096;
    for (int i = 0; i < 20; ++i)  // only the first waits the whole time
      rank.kernels[0].launch(rank.stream, AllReduce::launch_shape(problem, params[0]), args);
    rank.stream.synchronize();
    rank.links.throw_if_stopped();
  }),
                    Catch::Contains("did not answer"));
}
