#pragma once

#include <string_view>

// Parameters of a template that is compiled for the emulator: the defaults of its .params.def but
// for those that OVERRIDES names ({"PARAM", value}, …).

namespace {

struct Override {
  std::string_view name;
  int value;
};
constexpr Override kOverrides[] = {OVERRIDES, {"", 0}};

constexpr int value_of(std::string_view name, int value) {
  for (const Override& o : kOverrides)
    if (o.name == name) value = o.value;
  return value;
}

}  // namespace

#define INGOT_PARAMS_GENERATED
#define PARAM(type, name, value, doc) constexpr type name = value_of(#name, value);
