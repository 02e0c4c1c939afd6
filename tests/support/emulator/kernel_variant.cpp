// One variant of a kernel family on the emulator. Compiled once per variant with
//   TEMPLATE, PARAMS  "stem.cuh" and "stem.params.def"
//   STEM, ARGS        the family's kernel (renamed, so that variants live side by side) and
//   argument
//                     struct
//   VARIANT           the variant's name
//   OVERRIDES         {"PARAM", value}, … for parameters that differ from the default
// and with `kernels` renamed likewise.
#include <string_view>

#include "common/kv_layout.cuh"  // which defaults of parameters name
#include "tests/support/emulator/cuda.hpp"
#include "tests/support/emulator/kernel_variants.hpp"

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
#include PARAMS
#undef PARAM
#include TEMPLATE

#define STRING2(x) #x
#define STRING(x) STRING2(x)

namespace ingot::test::emulator {

KernelVariant VARIANT() {
  KernelVariant v;
  v.name = STRING(VARIANT);
  v.family = std::string_view(PARAMS).substr(0, std::string_view(PARAMS).find('.'));
#define PARAM(type, name, value, doc) v.params.emplace_back(#name, name);
#include PARAMS
#undef PARAM
  v.run = [](const Launch& launch, const void* args) {
    emulator::run(launch, [&] { kernels::STEM(*static_cast<const kernels::ARGS*>(args)); });
  };
  return v;
}

}  // namespace ingot::test::emulator
