#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/cuda/device_limits.hpp"
#include "runtime/jit/source_bundle.hpp"
#include "runtime/jit/variant.hpp"

namespace ingot::kernels {

/// One family on one problem and one card, with the family's types erased: what prewarm, the cache
/// commands and the compile-everything test work on.
struct VariantSet {
  std::string family;
  std::vector<jit::Variant> candidates;   ///< all legal ones, the default first
  std::vector<jit::Variant> extremes;     ///< the default, then each axis at its ends
  std::map<std::string, int> rejections;  ///< how many candidates each rule rejected
};

template <class Family>
VariantSet variants_of(const typename Family::Problem& problem, const cu::DeviceLimits& device) {
  const auto space = Family::space(problem, device);
  VariantSet set;
  set.family = Family::kStem;
  const auto erased = [](const typename Family::Params& params) {
    return jit::Variant{std::string(Family::kStem), jit::param_values(params)};
  };
  for (const auto& params : space.candidates())
    set.candidates.push_back(erased(params));
  for (const auto& params : space.extremes())
    set.extremes.push_back(erased(params));
  set.rejections = space.rejections();
  return set;
}

/// One row of families.def.
struct Family {
  std::string stem;
  bool (*runs_on)(const cu::DeviceLimits& device) = nullptr;
  /// The variants of each of the family's sample problems.
  std::vector<VariantSet> (*samples)(const cu::DeviceLimits& device) = nullptr;
  /// Every parameter with its default.
  std::vector<jit::ParamValue> defaults;
};

/// Every family, in the order of families.def.
std::vector<Family> families();

/// The templates of all families and what they include, as they were when this program was built.
jit::SourceTree embedded_templates();

}  // namespace ingot::kernels
