#include "runtime/jit/param_block.hpp"

#include <fmt/format.h>

namespace ingot::jit {

std::string param_block(std::span<const ParamValue> values, std::string_view template_name) {
  std::string block = "#define INGOT_PARAMS_GENERATED\n";
  for (const ParamValue& value : values) {
    if (value.type == "bool") {
      block += fmt::format("constexpr bool {} = {};\n", value.name, value.value != 0);
    } else {
      block += fmt::format("constexpr {} {} = {};\n", value.type, value.name, value.value);
    }
  }
  block += fmt::format("#line 1 \"{}\"\n", template_name);
  return block;
}

}  // namespace ingot::jit
