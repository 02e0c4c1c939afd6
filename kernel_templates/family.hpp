#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/cuda/device_limits.hpp"
#include "runtime/jit/source_bundle.hpp"
#include "runtime/jit/variant.hpp"
#include "tuner/tuning_request.hpp"

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

/// The families that may serve one problem, as far as they run on the card, in the order of choice
/// without a tuning. Empty where none does.
template <class First, class... Others>
std::vector<VariantSet> competing(const typename First::Problem& problem,
                                  const cu::DeviceLimits& device) {
  std::vector<VariantSet> sets;
  const auto add = [&]<class Family>() {
    if (!Family::runs_on(device)) return;
    VariantSet set = variants_of<Family>(problem, device);
    if (!set.candidates.empty()) sets.push_back(std::move(set));
  };
  add.template operator()<First>();
  (add.template operator()<Others>(), ...);
  return sets;
}

/// What the tuner chooses from for one problem.
template <class Problem>
TuningRequest tuning_request_of(const Problem& problem, const std::vector<VariantSet>& sets) {
  TuningRequest request{.problem = problem_fields(problem), .candidates = {}, .rejections = {}};
  for (const VariantSet& set : sets) {
    request.candidates.insert(request.candidates.end(), set.candidates.begin(),
                              set.candidates.end());
    for (const auto& [rule, count] : set.rejections)
      request.rejections[set.family + ": " + rule] = count;
  }
  return request;
}

/// One row of families.def.
struct Family {
  std::string stem;
  bool (*runs_on)(const cu::DeviceLimits& device) = nullptr;
  /// The variants of each of the family's sample problems that it takes on such a card.
  std::vector<VariantSet> (*samples)(const cu::DeviceLimits& device) = nullptr;
  /// Every parameter with its default.
  std::vector<jit::ParamValue> defaults;
};

/// Every family, in the order of families.def.
std::vector<Family> families();

/// The templates of all families and what they include, as they were when this program was built.
jit::SourceTree embedded_templates();

}  // namespace ingot::kernels
