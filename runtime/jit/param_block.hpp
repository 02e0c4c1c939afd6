#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace ingot::jit {

/// One compile-time parameter of a kernel with its value, as .params.def declares it.
struct ParamValue {
  std::string type;  ///< "int" or "bool"
  std::string name;  ///< "TILE_KV"
  std::int64_t value = 0;

  bool operator==(const ParamValue&) const = default;
};

/// The values of a family's Params struct, in the order of its .params.def.
template <class Params>
std::vector<ParamValue> param_values(const Params& params) {
  std::vector<ParamValue> values;
  params.for_each([&](std::string_view type, std::string_view name, auto value) {
    static_assert(std::is_same_v<decltype(value), int> || std::is_same_v<decltype(value), bool>,
                  "a parameter is an int or a bool");
    values.push_back({std::string(type), std::string(name), static_cast<std::int64_t>(value)});
  });
  return values;
}

/// The lines put in front of a template:
///   #define INGOT_PARAMS_GENERATED
///   constexpr int TILE_KV = 64;
/// and a #line directive, so that diagnostics count the template's own lines.
std::string param_block(std::span<const ParamValue> values, std::string_view template_name);

}  // namespace ingot::jit
