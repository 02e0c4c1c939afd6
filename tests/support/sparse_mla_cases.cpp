#include "tests/support/sparse_mla_cases.hpp"

#include <algorithm>

namespace ingot::test {
namespace {

std::size_t size(int value) {
  return static_cast<std::size_t>(value);
}

int* window_of(SparseMlaInputs& in, int row) {
  return in.window_indices.data() + size(row) * size(in.window_slots);
}
int* selected_of(SparseMlaInputs& in, int row) {
  return in.selected_indices.data() + size(row) * size(in.selected_slots);
}

/// Lists of `row` as long as given; what follows them no kernel may read as an entry.
void shorten(SparseMlaInputs& in, int row, int window, int selected) {
  in.window_counts[size(row)] = std::min(window, in.window_slots);
  in.selected_counts[size(row)] = std::min(selected, in.selected_slots);
  for (int i = in.window_counts[size(row)]; i < in.window_slots; ++i)
    window_of(in, row)[i] = 0x7fffff00 + i;
  for (int i = in.selected_counts[size(row)]; i < in.selected_slots; ++i)
    selected_of(in, row)[i] = 0x70000000 + i;
}

/// Changes every entry of both pools.
template <class Change>
void change_entries(SparseMlaInputs& in, const SparseMlaShape& shape, const Change& change) {
  for (int entry = 0; entry < shape.window_entries; ++entry) {
    KvEntry value = load_entry(in.window_pool, in.window_layout, entry);
    change(value, entry);
    store_entry(in.window_pool, in.window_layout, entry, value);
  }
  for (int entry = 0; entry < shape.selected_entries; ++entry) {
    KvEntry value = load_entry(in.selected_pool, in.selected_layout, entry);
    change(value, entry + 1);
    store_entry(in.selected_pool, in.selected_layout, entry, value);
  }
}

void set_scales(KvEntry& entry, int exponent) {
  std::fill_n(entry.scale_bytes, 7, static_cast<std::uint8_t>(127 + exponent));
}

}  // namespace

std::vector<SparseMlaCase> sparse_mla_cases(const SparseMlaShape& shape) {
  std::vector<SparseMlaCase> cases;
  const auto add = [&](std::string name, SparseMlaInputs inputs) {
    cases.push_back({std::move(name), std::move(inputs)});
  };
  auto fresh = [&, seed = shape.seed](int lowest, int highest) mutable {
    SparseMlaShape own = shape;
    own.seed = ++seed;
    own.lowest_scale = lowest;
    own.highest_scale = highest;
    return random_inputs(own);
  };
  const int last = shape.rows - 1;

  add("full lists", fresh(-10, -6));
  {
    auto in = fresh(-10, -6);
    shorten(in, last, shape.window_slots - 28, shape.selected_slots * 4 / 7);
    add("lists that fill no tile, garbage behind them", std::move(in));
  }
  {
    auto in = fresh(-10, -6);
    for (int row = 0; row < shape.rows; ++row) {
      for (int i = row; i < shape.window_slots; i += 3)
        window_of(in, row)[i] = -1;
      for (int i = row; i < shape.selected_slots; i += 2)
        selected_of(in, row)[i] = -1;
    }
    add("unused slots among used ones", std::move(in));
  }
  {
    auto in = fresh(-10, -6);
    shorten(in, last, 0, 0);
    add("a row without keys", std::move(in));
  }
  {
    auto in = fresh(-10, -6);
    std::fill_n(window_of(in, last), shape.window_slots, -1);
    std::fill_n(selected_of(in, last), shape.selected_slots, -1);
    add("a row of unused slots alone", std::move(in));
  }
  {
    auto in = fresh(-10, -6);
    shorten(in, last, 1, 0);
    add("a row with one key", std::move(in));
  }
  {
    auto in = fresh(-10, -6);
    shorten(in, last, 0, 1);
    add("a row with one selected key and no window", std::move(in));
  }
  {
    auto in = fresh(-10, -6);
    for (int row = 0; row < shape.rows; ++row) {
      window_of(in, row)[0] = 0;
      window_of(in, row)[shape.window_slots - 1] = shape.window_entries - 1;
      if (shape.selected_slots == 0) continue;
      selected_of(in, row)[0] = 0;
      selected_of(in, row)[shape.selected_slots - 1] = shape.selected_entries - 1;
    }
    add("the first and the last entry of the pools", std::move(in));
  }
  add("every scale 2^-22", fresh(-22, -22));
  add("every scale 2^15", fresh(15, 15));
  add("scales 2^-22 to 2^-2 in every entry", fresh(-22, -2));
  {
    auto in = fresh(-10, -6);
    change_entries(in, shape, [](KvEntry& entry, int i) {
      for (int group = 0; group < 7; ++group)
        entry.scale_bytes[group] =
            static_cast<std::uint8_t>(127 - 22 + i * 7 % 18 + (i * 31 + group * 11) % 21);
    });
    add("scales 2^-22 to 2^15, up to 2^20 apart in an entry", std::move(in));
  }
  {
    // The key with the largest score has the smallest scales but for the group that makes it so.
    auto in = fresh(-10, -6);
    change_entries(in, shape, [](KvEntry& entry, int i) {
      set_scales(entry, i % 5 == 0 ? -24 + 2 : -12);
      if (i % 5 == 0) entry.scale_bytes[3] = 127 - 2;
    });
    add("scales 2^20 apart in the entries that weigh most", std::move(in));
  }
  {
    auto in = fresh(-10, -6);
    in.q[(size(last) * size(shape.heads) + 1) * 512 + 77] = 0x7fc0;
    add("NaN in one query head", std::move(in));
  }
  {
    auto in = fresh(-10, -6);
    // An entry that only the last row uses.
    const int entry = shape.window_entries - 1;
    for (int& index : in.window_indices)
      if (index == entry) index = 0;
    window_of(in, last)[5] = entry;
    KvEntry value = load_entry(in.window_pool, in.window_layout, entry);
    value.codes[200] = 0x7f;
    store_entry(in.window_pool, in.window_layout, entry, value);
    add("NaN in one row's key", std::move(in));
  }
  return cases;
}

}  // namespace ingot::test
