#include "runtime/jit/arch.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace ingot::jit {
namespace {

// The suffix "a" opens the instructions of one chip (wgmma, tcgen05, block-scaled mma); such a
// cubin runs on no other. Source: CUDA 13.0 C++ Programming Guide, "Compute Capabilities", and PTX
// ISA 9.0, table of targets. sm_101 of CUDA 12 is sm_110 of CUDA 13 (Thor).
constexpr std::array<Arch, 13> kArchs{{
    {7, 5, "sm_75"},
    {8, 0, "sm_80"},
    {8, 6, "sm_86"},
    {8, 7, "sm_87"},
    {8, 8, "sm_88"},
    {8, 9, "sm_89"},
    {9, 0, "sm_90a"},
    {10, 0, "sm_100a"},
    {10, 1, "sm_101a"},
    {10, 3, "sm_103a"},
    {11, 0, "sm_110a"},
    {12, 0, "sm_120a"},
    {12, 1, "sm_121a"},
}};

std::string known_names() {
  std::string names;
  for (const Arch& arch : kArchs)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", arch.name);
  return names;
}

}  // namespace

std::span<const Arch> known_archs() {
  return kArchs;
}

Result<std::string> arch_of(int compute_major, int compute_minor) {
  for (const Arch& arch : kArchs) {
    if (arch.compute_major == compute_major && arch.compute_minor == compute_minor) {
      return std::string(arch.name);
    }
  }
  return fail(
      ErrorCode::unsupported,
      fmt::format("compute capability {}.{} is not in the table of architectures ({}); try "
                  "--arch sm_{}{}",
                  compute_major, compute_minor, known_names(), compute_major, compute_minor));
}

bool runs_on(std::string_view arch, int compute_major, int compute_minor) {
  const auto number = arch_number(arch);
  if (!number) return false;
  const int major = *number / 10;
  const int minor = *number % 10;
  if (arch.ends_with('a')) return major == compute_major && minor == compute_minor;
  return major == compute_major && minor <= compute_minor;
}

std::optional<int> arch_number(std::string_view arch) {
  if (!arch.starts_with("sm_")) return std::nullopt;
  arch.remove_prefix(3);
  if (arch.ends_with('a') || arch.ends_with('f')) arch.remove_suffix(1);
  int number = 0;
  const auto parsed = std::from_chars(arch.data(), arch.data() + arch.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != arch.data() + arch.size()) return std::nullopt;
  if (arch.size() < 2 || arch.size() > 3 || number < 10) return std::nullopt;
  return number;
}

Result<std::string> parse_arch(std::string_view text) {
  if (arch_number(text)) return std::string(text);
  return fail(ErrorCode::invalid_argument,
              fmt::format("\"{}\" is no architecture; known: {}", text, known_names()));
}

}  // namespace ingot::jit
