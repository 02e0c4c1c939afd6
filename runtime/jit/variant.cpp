#include "runtime/jit/variant.hpp"

#include <fmt/format.h>

namespace ingot::jit {

std::string describe(const Variant& variant) {
  std::string text = variant.family;
  for (const ParamValue& param : variant.params) {
    text += fmt::format(" {}={}", param.name, param.value);
  }
  return text;
}

}  // namespace ingot::jit
