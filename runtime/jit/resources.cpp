#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "runtime/jit/compiler.hpp"

namespace ingot::jit {
namespace {

/// The number that ends right before `words` in `line`: (" bytes smem", "… 512 bytes smem") → 512.
std::optional<int> number_before(std::string_view line, std::string_view words) {
  const std::size_t at = line.find(words);
  if (at == std::string_view::npos) return std::nullopt;
  std::size_t begin = at;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9')
    --begin;
  int value = 0;
  const auto parsed = std::from_chars(line.data() + begin, line.data() + at, value);
  if (parsed.ec != std::errc() || begin == at) return std::nullopt;
  return value;
}

}  // namespace

// ptxas prints per function
//   ptxas         .     256 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
//   ptxas info    : Used 40 registers, used 1 barriers, 256 bytes cumulative stack size, 512 bytes
//   smem
Result<Resources> resources_in_log(const std::string& log) {
  Resources found;
  bool has_registers = false;
  std::string_view rest = log;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (const auto bytes = number_before(line, " bytes stack frame")) found.stack_bytes += *bytes;
    if (const auto bytes = number_before(line, " bytes spill stores")) {
      found.spill_store_bytes += *bytes;
    }
    if (const auto bytes = number_before(line, " bytes spill loads")) {
      found.spill_load_bytes += *bytes;
    }
    if (const auto count = number_before(line, " registers")) {
      found.registers = std::max(found.registers, *count);
      has_registers = true;
      if (const auto bytes = number_before(line, " bytes smem")) {
        found.smem_bytes = std::max(found.smem_bytes, *bytes);
      }
    }
  }
  if (!has_registers) {
    return fail(ErrorCode::corrupt,
                "the compiler's log reports no registers: was ptxas asked to be verbose?");
  }
  return found;
}

}  // namespace ingot::jit
