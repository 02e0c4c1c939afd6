#include "kernel_templates/family.hpp"

#include "kernel_templates/family_headers.hpp"  // generated: every <stem>.space.hpp

namespace ingot::kernels {
namespace {

template <class F>
Family family_of() {
  return {.stem = std::string(F::kStem),
          .runs_on = &F::runs_on,
          .samples =
              [](const cu::DeviceLimits& device) {
                std::vector<VariantSet> sets;
                for (const auto& problem : F::sample_problems()) {
                  if constexpr (requires { F::takes(problem, device); }) {
                    if (!F::takes(problem, device)) continue;
                  }
                  sets.push_back(variants_of<F>(problem, device));
                }
                return sets;
              },
          .defaults = jit::param_values(typename F::Params{})};
}

}  // namespace

std::vector<Family> families() {
  return {
#define FAMILY(Type, stem) family_of<Type>(),
#include "kernel_templates/families.def"
#undef FAMILY
  };
}

}  // namespace ingot::kernels
