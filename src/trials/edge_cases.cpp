#include "src/trials/edge_cases.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace ingot::trials {
namespace {

/// Where the rows of each sequence begin, and how many rows are in use.
struct Placement {
  std::vector<std::int64_t> first_positions;  // by sequence
  int live_rows = 0;
};

/// How the token of a row of logits is chosen.
kernels::SampleRow sample_row(int row, bool varied) {
  kernels::SampleRow sample{.temperature = 1,
                            .top_p = 0.95,
                            .min_p = 0,
                            .repetition_penalty = 1,
                            .presence_penalty = 0,
                            .frequency_penalty = 0,
                            .seed = static_cast<kernels::u64>(row) + 1,
                            .position = 100,
                            .top_k = 0,
                            .bias_begin = 0,
                            .bias_count = 0,
                            .has_penalties = 0,
                            .logprobs = -1,
                            .reserved = 0};
  if (!varied) return sample;
  sample.logprobs = row % 3 == 0 ? kernels::SAMPLE_MOST_LOGPROBS : row % 3 - 2;
  switch (row % 4) {
    case 0:
      sample.top_k = 50;
      sample.min_p = 0.02;
      break;
    case 1:
      sample.temperature = 0;
      break;
    case 2:
      sample.temperature = 1.9;
      sample.top_p = 1;
      break;
    default:
      sample.top_k = 3;
  }
  if (row == 0) {
    sample.has_penalties = 1;
    sample.repetition_penalty = 1.3;
    sample.presence_penalty = 0.5;
    sample.frequency_penalty = 0.2;
  }
  return sample;
}

EdgeCase make_case(const StepBucket& bucket, int vocabulary, std::string name,
                   const Placement& placement) {
  EdgeCase made;
  made.name = std::move(name);
  made.bucket_rows = bucket.rows;
  made.live_rows = placement.live_rows;
  executor::StepInputs& in = made.inputs;
  const int each = bucket.rows / bucket.sequences;
  std::uint32_t token = 1;
  for (int row = 0; row < bucket.rows; ++row) {
    const bool live = row < placement.live_rows;
    const int sequence = row / each;
    token = token * 1664525U + 1013904223U;  // Numerical Recipes: any sequence does
    in.ids(bucket.rows)[row] =
        live ? static_cast<int>((token >> 8) % static_cast<std::uint32_t>(vocabulary)) : 0;
    in.sequences(bucket.rows)[row] = live ? sequence : -1;
    in.positions(bucket.rows)[row] =
        live ? static_cast<int>(placement.first_positions[static_cast<std::size_t>(sequence)]) +
                   row % each
             : 0;
  }
  for (int s = 0; s <= bucket.sequences; ++s)
    in.row_starts[s] = std::min(s * each, placement.live_rows);
  for (int s = 0; s < bucket.sequences; ++s)
    in.slots[s] = s;
  for (int i = 0; i < bucket.logit_rows; ++i)
    in.picks[i] = bucket.rows - bucket.logit_rows + i;
  for (int i = 0; bucket.sampled && i < bucket.logit_rows; ++i)
    in.sample_rows(bucket.logit_rows)[i] = sample_row(i, made.name != "largest");
  return made;
}

}  // namespace

std::vector<EdgeCase> edge_cases(const StepBucket& bucket, int vocabulary, int top) {
  const int each = bucket.rows / bucket.sequences;
  const std::int64_t last = std::max<std::int64_t>(bucket.context - each, 0);
  const auto sequences = static_cast<std::size_t>(bucket.sequences);
  std::vector<EdgeCase> cases;
  const auto add = [&](const char* name, int live_rows, const auto& first_position) {
    Placement placement{.first_positions = std::vector<std::int64_t>(sequences),
                        .live_rows = live_rows};
    for (int s = 0; s < bucket.sequences; ++s)
      placement.first_positions[static_cast<std::size_t>(s)] =
          std::clamp<std::int64_t>(first_position(s), 0, last);
    cases.push_back(make_case(bucket, vocabulary, name, placement));
  };
  // The end of the context completes a block of every compressor, in the last page of the pool.
  add("largest", bucket.rows, [&](int) { return last; });
  // Some windows are not full, some sequences have fewer keys than are selected, some a few more.
  const std::int64_t keys = 4 * std::max(top, 16);
  add("fewer keys than top-k", bucket.rows, [&](int s) { return (131 + 997 * s) % (2 * keys); });
  // Where there is one row it is the empty one.
  add("empty row", bucket.rows / 2, [&](int s) { return last / 2 + s; });
  add("one token", bucket.sequences == bucket.rows ? bucket.rows : 1, [](int) { return 0; });
  return cases;
}

}  // namespace ingot::trials
