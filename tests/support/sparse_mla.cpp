#include "tests/support/sparse_mla.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace ingot::test {

namespace {

constexpr int kDims = 512, kQuantDims = 448, kRopeDims = 64, kDataBytes = 576;

std::size_t size(int value) {
  return static_cast<std::size_t>(value);
}

double value_of_e4m3(std::uint8_t code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  if ((code & 0x7f) == 0x7f) return std::numeric_limits<double>::quiet_NaN();
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

double value_of_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t bf16_of(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

std::vector<double> dequantize(const KvEntry& entry) {
  std::vector<double> values(kDims);
  for (int d = 0; d < kQuantDims; ++d)
    values[size(d)] = std::ldexp(value_of_e4m3(entry.codes[d]), entry.scale_bytes[d / 64] - 127);
  for (int d = 0; d < kRopeDims; ++d)
    values[size(kQuantDims + d)] = value_of_bf16(entry.rope[d]);
  return values;
}

KvEntry random_entry(std::mt19937_64& random, int lowest_scale, int highest_scale) {
  std::normal_distribution<double> normal;
  KvEntry entry;
  for (auto& code : entry.codes) {
    code = static_cast<std::uint8_t>(random());
    if ((code & 0x7f) == 0x7f) code ^= 4;  // NaN
  }
  for (auto& bits : entry.rope)
    bits = bf16_of(normal(random));
  const auto spread = static_cast<std::uint64_t>(highest_scale - lowest_scale + 1);
  for (auto& scale : entry.scale_bytes)
    scale = static_cast<std::uint8_t>(127 + lowest_scale + static_cast<int>(random() % spread));
  return entry;
}

std::vector<std::uint8_t> random_pool(std::mt19937_64& random, const KvLayout& layout, int entries,
                                      const SparseMlaShape& shape) {
  const int pages = (entries + layout.page_entries - 1) / layout.page_entries;
  std::vector<std::uint8_t> pool(size(pages) * size(layout.page_bytes), 0xff);
  for (int entry = 0; entry < entries; ++entry)
    store_entry(pool, layout, entry, random_entry(random, shape.lowest_scale, shape.highest_scale));
  return pool;
}

}  // namespace

std::size_t KvLayout::entry_offset(int entry) const {
  return size(entry / page_entries) * size(page_bytes) +
         size(entry % page_entries) * size(entry_stride);
}
std::size_t KvLayout::scale_offset(int entry) const {
  if (scales_beside) return entry_offset(entry) + kDataBytes;
  return size(entry / page_entries) * size(page_bytes) + size(page_entries) * size(entry_stride) +
         size(entry % page_entries) * 8;
}

void store_entry(std::span<std::uint8_t> pool, const KvLayout& layout, int entry,
                 const KvEntry& value) {
  std::uint8_t* to = pool.data() + layout.entry_offset(entry);
  std::memcpy(to, value.codes, sizeof value.codes);
  std::memcpy(to + kQuantDims, value.rope, sizeof value.rope);
  std::uint8_t* scales = pool.data() + layout.scale_offset(entry);
  std::memcpy(scales, value.scale_bytes, 7);
  scales[7] = 0;
}
KvEntry load_entry(std::span<const std::uint8_t> pool, const KvLayout& layout, int entry) {
  KvEntry value;
  const std::uint8_t* from = pool.data() + layout.entry_offset(entry);
  std::memcpy(value.codes, from, sizeof value.codes);
  std::memcpy(value.rope, from + kQuantDims, sizeof value.rope);
  std::memcpy(value.scale_bytes, pool.data() + layout.scale_offset(entry), 7);
  return value;
}

SparseMlaInputs random_inputs(const SparseMlaShape& shape) {
  std::mt19937_64 random(shape.seed);
  std::normal_distribution<double> normal;
  SparseMlaInputs in;
  in.rows = shape.rows;
  in.heads = shape.heads;
  in.window_slots = shape.window_slots;
  in.selected_slots = shape.selected_slots;
  in.window_layout = shape.window_layout;
  in.selected_layout = shape.selected_layout;
  in.q.resize(size(shape.rows) * size(shape.heads) * kDims);
  for (auto& bits : in.q)
    bits = bf16_of(normal(random));
  in.window_pool = random_pool(random, shape.window_layout, shape.window_entries, shape);
  in.selected_pool = random_pool(random, shape.selected_layout, shape.selected_entries, shape);
  for (int row = 0; row < shape.rows; ++row) {
    const int first = static_cast<int>(random() % size(shape.window_entries));
    for (int i = 0; i < shape.window_slots; ++i)
      in.window_indices.push_back((first + i) % shape.window_entries);
    for (int i = 0; i < shape.selected_slots; ++i)
      in.selected_indices.push_back(static_cast<int>(random() % size(shape.selected_entries)));
    in.window_counts.push_back(shape.window_slots);
    in.selected_counts.push_back(shape.selected_slots);
    in.positions.push_back(static_cast<int>(random() % 1'000'000));
  }
  for (int head = 0; head < shape.heads; ++head)
    in.sink.push_back(static_cast<float>(-4.0 + 8.0 * head / shape.heads));
  for (int pair = 0; pair < kRopeDims / 2; ++pair)
    in.frequencies.push_back(static_cast<float>(std::pow(10000.0, -2.0 * pair / kRopeDims)));
  return in;
}

std::vector<double> sparse_mla_reference(const SparseMlaInputs& in, bool has_sink,
                                         bool inverse_rope) {
  std::vector<double> out(size(in.rows) * size(in.heads) * kDims);
  for (int row = 0; row < in.rows; ++row) {
    std::vector<std::vector<double>> keys;
    const auto take = [&](const std::vector<int>& indices, int slots, int count,
                          const std::vector<std::uint8_t>& pool, const KvLayout& layout) {
      for (int i = 0; i < count; ++i) {
        const int entry = indices[size(row) * size(slots) + size(i)];
        if (entry >= 0) keys.push_back(dequantize(load_entry(pool, layout, entry)));
      }
    };
    take(in.window_indices, in.window_slots, in.window_counts[size(row)], in.window_pool,
         in.window_layout);
    take(in.selected_indices, in.selected_slots, in.selected_counts[size(row)], in.selected_pool,
         in.selected_layout);
    for (int head = 0; head < in.heads; ++head) {
      double* to = out.data() + (size(row) * size(in.heads) + size(head)) * kDims;
      const std::uint16_t* q = in.q.data() + (size(row) * size(in.heads) + size(head)) * kDims;
      std::fill_n(to, kDims, 0.0);
      if (keys.empty()) continue;
      std::vector<double> scores;
      double largest = -std::numeric_limits<double>::infinity();
      for (const auto& key : keys) {
        double sum = 0;
        for (int d = 0; d < kDims; ++d)
          sum += value_of_bf16(q[d]) * key[size(d)];
        scores.push_back(sum / std::sqrt(512.0));
        largest = std::max(largest, scores.back());
      }
      double total = has_sink ? std::exp(static_cast<double>(in.sink[size(head)]) - largest) : 0;
      for (std::size_t k = 0; k < keys.size(); ++k) {
        const double weight = std::exp(scores[k] - largest);
        total += weight;
        for (int d = 0; d < kDims; ++d)
          to[d] += weight * keys[k][size(d)];
      }
      for (int d = 0; d < kDims; ++d)
        to[d] = std::isinf(total) ? 0 : to[d] / total;
      if (!inverse_rope) continue;
      for (int pair = 0; pair < kRopeDims / 2; ++pair) {
        const float angle =
            static_cast<float>(in.positions[size(row)]) * in.frequencies[size(pair)];
        const double cosine = std::cos(static_cast<double>(angle)),
                     sine = -std::sin(static_cast<double>(angle));
        double& a = to[kQuantDims + 2 * pair];
        double& b = to[kQuantDims + 2 * pair + 1];
        const double x = a, y = b;
        a = x * cosine - y * sine;
        b = x * sine + y * cosine;
      }
    }
  }
  return out;
}

Difference compare(std::span<const std::uint16_t> result, std::span<const double> reference) {
  Difference difference;
  double error = 0, norm = 0;
  for (std::size_t first = 0; first < result.size(); first += 64) {
    double group_error = 0, group_norm = 0;
    for (std::size_t i = first; i < first + 64; ++i) {
      const double value = value_of_bf16(result[i]);
      if (std::isnan(value) != std::isnan(reference[i])) difference.nan_differs = true;
      if (std::isnan(value) || std::isnan(reference[i])) continue;
      group_error += (value - reference[i]) * (value - reference[i]);
      group_norm += reference[i] * reference[i];
    }
    error += group_error;
    norm += group_norm;
    if (group_error > 0)
      difference.worst_group = std::max(difference.worst_group,
                                        group_norm > 0 ? std::sqrt(group_error / group_norm)
                                                       : std::numeric_limits<double>::infinity());
  }
  if (error > 0)
    difference.relative =
        norm > 0 ? std::sqrt(error / norm) : std::numeric_limits<double>::infinity();
  return difference;
}

}  // namespace ingot::test
