#include "tests/support/indexer_topk.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <span>

namespace ingot::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Builder {
  int entries, page_entries;
  std::mt19937 random{41};

  TopkCase make(std::string name, const std::vector<int>& counts,
                const std::function<float(int row, int entry)>& score) {
    TopkInputs in;
    in.rows = static_cast<int>(counts.size());
    in.score_stride = (entries + 3) / 4 * 4 + 8;
    in.counts = counts;
    in.page_entries = page_entries;
    in.page_stride = (entries + page_entries - 1) / page_entries;
    in.scores.assign(static_cast<std::size_t>(in.rows) * static_cast<std::size_t>(in.score_stride),
                     kNan);
    for (int row = 0; row < in.rows; ++row) {
      for (int i = 0; i < counts[static_cast<std::size_t>(row)]; ++i) {
        in.scores[static_cast<std::size_t>(row) * static_cast<std::size_t>(in.score_stride) +
                  static_cast<std::size_t>(i)] = score(row, i);
      }
      // Two sequences share the rows; their pages are interleaved at random.
      in.sequences.push_back(1 - row % 2);
    }
    in.page_table.resize(2 * static_cast<std::size_t>(in.page_stride));
    std::iota(in.page_table.begin(), in.page_table.end(), 3);
    std::shuffle(in.page_table.begin(), in.page_table.end(), random);
    return {std::move(name), std::move(in)};
  }
};

}  // namespace

std::vector<TopkCase> topk_cases(int entries, int topk, int chunk, int page_entries) {
  Builder b{entries, page_entries};
  std::normal_distribution<float> normal;
  std::vector<int> lengths{0, 1, topk - 1, topk, topk + 1, entries, entries - 1};
  for (const int length : {2 * topk + 3, chunk - 1, chunk, chunk + 1, chunk + topk,
                           chunk + topk + 2, entries - chunk + 5, entries / 4 * 3})
    if (length > 0 && length <= entries) lengths.push_back(length);
  constexpr int kManyEntries = 32768;  // from here on also these
  for (const int length : {4095, 4097, 32768, 65535, 65537})
    if (entries >= kManyEntries && length <= entries) lengths.push_back(length);
  const std::vector<int> whole{entries};
  std::vector<TopkCase> cases;
  cases.push_back(b.make("many lengths", lengths, [&](int, int) { return normal(b.random); }));
  cases.push_back(b.make("all equal", {entries, topk + 5}, [](int, int) { return -0.25F; }));
  cases.push_back(b.make("few values", {entries, entries / 2}, [&](int, int) {
    return static_cast<float>(static_cast<int>(b.random() % 7) - 3);
  }));
  cases.push_back(b.make("both zeros among negatives", whole, [&](int, int i) {
    return i % 3 == 0 ? 0.0F : i % 3 == 1 ? -0.0F : -normal(b.random) * normal(b.random);
  }));
  cases.push_back(b.make("rising", whole, [](int, int i) { return static_cast<float>(i); }));
  cases.push_back(b.make("falling", whole, [](int, int i) { return -static_cast<float>(i); }));
  cases.push_back(b.make("one neighbourhood", whole, [&](int, int i) {
    return std::abs(i - entries / 2) < topk ? 100.0F + normal(b.random) : normal(b.random);
  }));
  cases.push_back(
      b.make("NaN and infinities", {entries, entries - 3, topk + 2}, [&](int row, int i) {
        const auto kind = b.random() % 16;
        if (row == 2) return i % 2 == 0 ? kNan : -kInfinity;
        return kind == 0               ? kNan
               : kind == 1             ? -kInfinity
               : kind == 2 && row == 1 ? kInfinity
                                       : normal(b.random);
      }));
  cases.push_back(b.make("nothing but NaN", {entries, topk}, [](int, int) { return kNan; }));
  cases.push_back(b.make("far apart and denormal", whole, [&](int, int) {
    const int exponent = static_cast<int>(b.random() % 270) - 145;
    return std::ldexp(normal(b.random), exponent);
  }));
  cases.push_back(b.make("a neighbour in the last bit", whole, [&](int, int) {
    return 1.0F + static_cast<float>(b.random() % 64) * 0x1p-23F;
  }));
  return cases;
}

TopkResult topk_reference(const TopkInputs& in, int topk, bool map_pages) {
  TopkResult result;
  for (int row = 0; row < in.rows; ++row) {
    const int count = in.counts[static_cast<std::size_t>(row)];
    const auto scores = std::span(in.scores).subspan(
        static_cast<std::size_t>(row) * static_cast<std::size_t>(in.score_stride),
        static_cast<std::size_t>(count));
    std::vector<int> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    const auto key = [&](int i) {
      const float v = scores[static_cast<std::size_t>(i)];
      return std::isnan(v) ? -kInfinity : v;
    };
    std::stable_sort(order.begin(), order.end(), [&](int a, int c) { return key(a) > key(c); });
    order.resize(static_cast<std::size_t>(std::min(count, topk)));
    std::sort(order.begin(), order.end());
    result.selected_counts.push_back(static_cast<int>(order.size()));
    // A row whose entries are all taken is not looked at.
    result.nan_counts.push_back(
        count <= topk ? 0
                      : static_cast<std::uint32_t>(std::count_if(
                            scores.begin(), scores.end(), [](float v) { return std::isnan(v); })));
    const int* const pages =
        in.page_table.data() + in.sequences[static_cast<std::size_t>(row)] * in.page_stride;
    for (int& entry : order)
      if (map_pages)
        entry = pages[entry / in.page_entries] * in.page_entries + entry % in.page_entries;
    order.resize(static_cast<std::size_t>(topk), -1);
    result.indices.insert(result.indices.end(), order.begin(), order.end());
  }
  return result;
}

}  // namespace ingot::test
