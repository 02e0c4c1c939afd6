#include "tests/support/text_corpus.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/support/temp_dir.hpp"

namespace ingot::test {
namespace {

std::string utf8(std::uint32_t point) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (point >> shift & 0x3F)); };
  if (point < 0x80) return {static_cast<char>(point)};
  if (point < 0x800) return {static_cast<char>(0xC0 | point >> 6), tail(0)};
  if (point < 0x10000) return {static_cast<char>(0xE0 | point >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | point >> 18), tail(12), tail(6), tail(0)};
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

}  // namespace

std::string text_corpus() {
  const auto recipe = nlohmann::json::parse(read_file(golden_dir() / "text/corpus.json"));
  auto fragments = recipe["fragments"].get<std::vector<std::string>>();
  for (const auto& hex : recipe["hex_fragments"])
    fragments.push_back(from_hex(hex));
  auto state = recipe["seed"].get<std::uint64_t>();
  const auto random = [&](std::uint64_t below) {  // splitmix64
    state += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return ((z ^ z >> 31) >> 32) % below;
  };
  std::string out;
  while (out.size() < recipe["bytes"].get<std::size_t>()) {
    const std::uint64_t kind = random(16);
    if (kind < 14) {
      const std::string& fragment = fragments[random(fragments.size())];
      const std::uint64_t times = kind < 13 ? 1 : 1 + random(40);
      for (std::uint64_t i = 0; i < times; ++i)
        out += fragment;
    } else {
      const auto point = static_cast<std::uint32_t>(random(0x20000));
      out += point >= 0xD800 && point < 0xE000 ? " " : utf8(point);
    }
  }
  return out;
}

}  // namespace ingot::test
