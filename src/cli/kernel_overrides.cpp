#include "src/cli/kernel_overrides.hpp"

#include <utility>
#include <vector>

#include "kernel_templates/family.hpp"

namespace ingot {

Result<Overrides> read_overrides(std::span<const std::string> pins,
                                 std::span<const std::string> disabled) {
  std::vector<jit::Variant> families;
  for (kernels::Family& family : kernels::families())
    families.push_back({std::move(family.stem), std::move(family.defaults)});
  return parse_overrides(pins, disabled, families);
}

}  // namespace ingot
