#include "tests/support/attention_slots_check.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

namespace ingot::test {
namespace {

constexpr int kPoison = -7777;
constexpr int kPassSlots = 64 * 1000;  // behind all rings

}  // namespace

std::vector<SlotsRow> edge_rows() {
  std::vector<SlotsRow> rows;
  int sequence = 0;
  for (const int position : {0,    1,    3,    4,    126,  127,    128,    129,     254,      255,
                             256,  383,  384,  511,  512,  639,    640,    641,     767,      768,
                             1279, 1280, 8190, 8191, 8192, 16'383, 16'384, 131'071, 1'048'575}) {
    rows.push_back({position, sequence});
    if (position % 3 == 0) rows.push_back({position, -1});
    sequence = (sequence + 3) % 8;
  }
  // Draft tokens behind each other in one sequence.
  for (const int position : {1021, 1022, 1023, 1024})
    rows.push_back({position, 7});
  return rows;
}

std::vector<SlotsRow> wide_rows(int ring) {
  std::vector<SlotsRow> rows;
  const auto add = [&](int sequence, int first, int count) {
    for (int i = 0; i < count; ++i)
      rows.push_back({first + i, sequence});
  };
  add(3, 0, 1);           // a first token
  add(0, 0, ring + 200);  // a prompt from its start, longer than its ring
  add(5, 1021, 1);        // single tokens of others between
  add(2, ring - 1, 1);
  add(7, 130, 2 * ring + 5);  // goes on where its ring is about to wrap, and wraps twice
  add(4, 8190, 3);
  add(1, 77, ring);
  for (int i = 0; i < 3; ++i)
    rows.push_back({0, -1});
  return rows;
}

void check_attention_slots(KernelTarget& target, kernels::AttentionSlots::Problem problem,
                           const kernels::AttentionSlots::Params& params,
                           const std::vector<SlotsRow>& rows) {
  using Family = kernels::AttentionSlots;
  const jit::Variant variant = variant_of<Family>(params);
  CAPTURE(jit::describe(variant), problem.hca_slots);
  problem.rows = static_cast<int>(rows.size());
  const auto list = [](int length) { return static_cast<std::size_t>(length); };
  int last = 0, sequences = 1;
  std::vector<int> positions, owners;
  for (const SlotsRow& row : rows) {
    positions.push_back(row.position);
    owners.push_back(row.sequence);
    last = std::max(last, row.position);
    sequences = std::max(sequences, row.sequence + 1);
  }
  // The launch has two rows more than the step: what they would read is there, but not theirs.
  positions.insert(positions.end(), {5, 5});
  owners.insert(owners.end(), {0, 0});
  const std::size_t launched = rows.size() + 2;
  const int page_stride = (last + 1) / 128 / problem.page_entries + 2;
  std::vector<int> page_table;
  for (int s = 0; s < sequences; ++s) {
    for (int i = 0; i < page_stride; ++i)
      page_table.push_back((i * 13 + s * 5) % 101 * sequences + s);
  }

  const auto poisoned = [](std::size_t count) { return std::vector<int>(count, kPoison); };
  auto windows = poisoned(launched * list(problem.window));
  auto selected = poisoned(launched * list(problem.hca_slots));
  auto window_counts = poisoned(launched), appended = window_counts, hca = window_counts,
       csa = window_counts, keeps = window_counts;
  kernels::AttentionSlotsArgs args{};
  args.positions = target.place_as<const int>(positions);
  args.sequences = target.place_as<const int>(owners);
  args.window_indices = target.place_as<int>(windows);
  args.window_counts = target.place_as<int>(window_counts);
  args.append_slots = target.place_as<int>(appended);
  if (problem.wide) args.keep_slots = target.place_as<int>(keeps);
  args.pass_slots = kPassSlots;
  args.hca_counts = target.place_as<int>(hca);
  args.csa_counts = target.place_as<int>(csa);
  if (problem.hca_slots > 0) {
    args.page_table = target.place_as<const int>(page_table);
    args.hca_indices = target.place_as<int>(selected);
  }
  args.rows = problem.rows;
  args.hca_slots = problem.hca_slots;
  args.page_stride = page_stride;
  problem.rows = static_cast<int>(launched);
  target.run(variant, Family::launch_shape(problem, params), &args);

  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto [position, sequence] = rows[r];
    window_counts[r] = hca[r] = csa[r] = 0;
    appended[r] = keeps[r] = -1;
    if (sequence < 0) continue;
    // Page after page of the sequence's ring, place after place.
    const auto in_ring = [&, s = sequence](int q) {
      const int entry = q % problem.ring, pages = problem.ring / problem.page_entries;
      return (s * pages + entry / problem.page_entries) * problem.page_entries +
             entry % problem.page_entries;
    };
    int* const window = &windows[r * list(problem.window)];
    std::fill_n(window, problem.window, -1);
    for (int q = std::max(0, position - (problem.window - 1)); q <= position; ++q)
      window[window_counts[r]++] = in_ring(q);
    appended[r] = in_ring(position);
    if (problem.wide) {
      // What this launch brings itself is found beside the rings, row by row.
      appended[r] = kPassSlots + static_cast<int>(r);
      int newest = position;
      for (std::size_t other = 0; other < rows.size(); ++other) {
        if (rows[other].sequence != sequence) continue;
        newest = std::max(newest, rows[other].position);
        const int back = position - rows[other].position;
        if (back >= 0 && back < window_counts[r])
          window[window_counts[r] - 1 - back] = kPassSlots + static_cast<int>(other);
      }
      if (newest - position < problem.ring) keeps[r] = in_ring(position);
    }
    // A block of tokens is seen as soon as its last one is there.
    for (int block = 0; (block + 1) * 4 - 1 <= position; ++block)
      ++csa[r];
    for (int block = 0; (block + 1) * 128 - 1 <= position && block < problem.hca_slots; ++block) {
      const int page = page_table[list(sequence * page_stride + block / problem.page_entries)];
      selected[r * list(problem.hca_slots) + list(block)] =
          page * problem.page_entries + block % problem.page_entries;
      ++hca[r];
    }
  }
  CHECK(target.fetch_as<int>(args.window_counts, launched) == window_counts);
  CHECK(target.fetch_as<int>(args.append_slots, launched) == appended);
  if (problem.wide) CHECK(target.fetch_as<int>(args.keep_slots, launched) == keeps);
  CHECK(target.fetch_as<int>(args.hca_counts, launched) == hca);
  CHECK(target.fetch_as<int>(args.csa_counts, launched) == csa);
  const auto same = [](const std::vector<int>& got, const std::vector<int>& wanted) {
    const auto at = std::mismatch(got.begin(), got.end(), wanted.begin());
    if (at.first != got.end())
      FAIL("element " << at.first - got.begin() << ": " << *at.first << " instead of "
                      << *at.second);
  };
  same(target.fetch_as<int>(args.window_indices, windows.size()), windows);
  if (problem.hca_slots > 0)
    same(target.fetch_as<int>(args.hca_indices, selected.size()), selected);
}

}  // namespace ingot::test
