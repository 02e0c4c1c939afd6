#include "src/executor/batch_free_kernels.hpp"

#include <any>
#include <functional>
#include <string_view>
#include <vector>

namespace ingot::executor {
namespace {

using Slot = StepKernels::Slot;

/// The uses of the widest step, in their order: each takes another problem of its kind.
class WidestUses {
 public:
  explicit WidestUses(KernelLibrary& library) : library_(library) {}

  template <class First, class... Others>
  Slot want(const typename First::Problem& widest) {
    using Problem = typename First::Problem;
    uses_.push_back([this, widest](const std::any& problem) {
      const auto* given = std::any_cast<Problem>(&problem);
      if (given == nullptr) {
        throw EngineError(ErrorCode::invalid_argument,
                          "planning a batch-free step: its launches are not those of the widest");
      }
      return library_.want_as<First, Others...>(*given, widest);
    });
    return uses_.size() - 1;
  }
  const cu::DeviceLimits& limits() const { return library_.limits(); }
  bool pins(std::string_view family) const { return library_.pins(family); }
  bool disables(std::string_view family) const { return library_.disables(family); }

  const std::vector<std::function<Slot(const std::any&)>>& uses() const { return uses_; }

 private:
  KernelLibrary& library_;
  std::vector<std::function<Slot(const std::any&)>> uses_;
};

/// Takes the problems of a step in the same order.
class NarrowUses {
 public:
  NarrowUses(const KernelLibrary& library, const WidestUses& widest)
      : library_(library), widest_(widest) {}

  template <class First, class... Others>
  Slot want(const typename First::Problem& problem) {
    return widest_.uses().at(next_++)(problem);
  }
  const cu::DeviceLimits& limits() const { return library_.limits(); }
  bool pins(std::string_view family) const { return library_.pins(family); }
  bool disables(std::string_view family) const { return library_.disables(family); }

 private:
  const KernelLibrary& library_;
  const WidestUses& widest_;
  std::size_t next_ = 0;
};

}  // namespace

StepKernels want_batch_free(KernelLibrary& library, const ModelConfig& config, int tp_size,
                            const StepBucket& bucket, bool one_shot) {
  const StepProblems narrow = step_problems(config, tp_size, bucket, one_shot);
  StepProblems widest = step_problems(
      config, tp_size, widest_batch_free(bucket, config.max_position_embeddings), one_shot);
  widest.pick_rows = narrow.pick_rows;  // copies rows: there is no sum in it
  WidestUses uses(library);
  StepKernels::want(uses, config, widest);
  NarrowUses narrow_uses(library, uses);
  return StepKernels::want(narrow_uses, config, narrow);
}

}  // namespace ingot::executor
