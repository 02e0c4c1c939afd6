#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel_templates/family.hpp"
#include "runtime/cuda/context.hpp"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/jit/kernel.hpp"
#include "runtime/jit/kernel_store.hpp"
#include "tuner/look_up.hpp"

namespace ingot::executor {

/// Device memory that one launch needs besides its inputs and outputs, in bytes.
struct KernelScratch {
  std::int64_t any = 0;       ///< of any content
  std::int64_t any_more = 0;  ///< likewise, a second array
  /// Every byte 0xff before the first launch and again after each: launches in one stream share it.
  std::int64_t ones = 0;
  std::int64_t ones_more = 0;
  std::int64_t ones_beside = 0;  ///< as `ones`, of launches that run beside a stream's others

  void make_room_for(const KernelScratch& other);
};

/// A kernel that is loaded on the card, and its launch for one problem.
struct ReadyKernel {
  jit::Kernel kernel;
  cu::LaunchShape shape;
  KernelScratch scratch;
  std::string variant;  ///< jit::describe
  Selection::Source source = Selection::Source::fallback;
  bool forced = false;  ///< by the user's pins or disabled families
};

/// The kernels of one card: a problem in, a loaded kernel out. First everything that will be needed
/// is wanted, then prepare() looks its parameters up, compiles what no cache has, many at a time,
/// and loads it. What is wanted twice is loaded once. The context must be current.
class KernelLibrary {
 public:
  using Slot = std::size_t;

  /// @param records  tuning choices; null: defaults run
  KernelLibrary(const cu::Context& context, jit::KernelStore& kernels, TuningStore* records,
                TuningScope scope, Overrides overrides);

  /// @tparam First  the family that serves without a tuning, Others those that compete with it
  template <class First, class... Others>
  Slot want(const typename First::Problem& problem) {
    auto sets = kernels::competing<First, Others...>(problem, limits_);
    Use use{.request = kernels::tuning_request_of(problem, sets),
            .launch = {},
            .most_scratch = {},
            .ready = {}};
    use.launch = [problem, limits = limits_](const jit::Variant& variant) {
      Launch launch;
      (void)(fill<First>(problem, limits, variant, launch) || ... ||
             fill<Others>(problem, limits, variant, launch));
      return launch;
    };
    use.most_scratch = [problem, limits = limits_] {
      KernelScratch most;
      add_scratch<First>(problem, limits, most);
      (add_scratch<Others>(problem, limits, most), ...);
      return most;
    };
    return add(std::move(use));
  }

  /// The kernel that serves another problem of these families without a tuning, launched for this
  /// one.
  template <class First, class... Others>
  Slot want_as(const typename First::Problem& problem, const typename First::Problem& other) {
    auto sets = kernels::competing<First, Others...>(other, limits_);
    Use use{.request = kernels::tuning_request_of(other, sets),
            .launched_as = describe(problem_fields(problem)),
            .launch = {},
            .most_scratch = {},
            .ready = {}};
    use.launch = [problem, other, limits = limits_](const jit::Variant& variant) {
      Launch launch;
      (void)(fill_as<First>(problem, other, limits, variant, launch) || ... ||
             fill_as<Others>(problem, other, limits, variant, launch));
      return launch;
    };
    use.most_scratch = [other, limits = limits_] {
      KernelScratch most;
      add_scratch<First>(other, limits, most);
      (add_scratch<Others>(other, limits, most), ...);
      return most;
    };
    return add(std::move(use));
  }

  /// Whether the user pins a parameter of this family.
  bool pins(std::string_view family) const { return overrides_.pins_family(family); }
  /// Whether the user disables this family.
  bool disables(std::string_view family) const { return overrides_.disables(family); }

  /// Errors (thrown): what KernelStore::get and Kernel::load report, with the kernel's name; the
  /// first one, after all others have ended.
  /// @param jobs  kernels that are compiled or read at a time
  void prepare(int jobs);
  /// The same for some of what is wanted.
  void prepare(std::span<const Slot> slots, int jobs);
  /// Likewise, unless something would have to be compiled for it: then none is made ready, and this
  /// returns false.
  bool prepare_compiled(std::span<const Slot> slots, int jobs);

  const ReadyKernel& at(Slot slot) const { return *uses_[slot].ready; }

  // For tuning.
  const TuningRequest& request(Slot slot) const { return uses_[slot].request; }
  /// The scratch that any candidate of the slot needs.
  KernelScratch most_scratch(Slot slot) const { return uses_[slot].most_scratch(); }
  /// A candidate of the slot, compiled elsewhere, loaded as prepare() would. Throws EngineError.
  ReadyKernel load(Slot slot, const jit::Variant& variant, std::span<const std::byte> cubin) const;

  const cu::DeviceLimits& limits() const { return limits_; }

 private:
  struct Launch {
    cu::LaunchShape shape;
    KernelScratch scratch;
    bool waits = false;  ///< its blocks wait for one another
  };
  struct Use {
    TuningRequest request;
    std::string launched_as = {};  ///< of want_as(): what it is launched for
    std::function<Launch(const jit::Variant&)> launch;
    std::function<KernelScratch()> most_scratch;
    std::optional<ReadyKernel> ready;
  };

  /// Fills the launch if the variant is one of the family's.
  template <class Family>
  static bool fill(const typename Family::Problem& problem, const cu::DeviceLimits& limits,
                   const jit::Variant& variant, Launch& launch);

  /// Fills the launch for a problem if the variant is one of the family's for the other problem.
  template <class Family>
  static bool fill_as(const typename Family::Problem& problem,
                      const typename Family::Problem& other, const cu::DeviceLimits& limits,
                      const jit::Variant& variant, Launch& launch);

  template <class Family>
  static Launch launch_of(const typename Family::Problem& problem, const cu::DeviceLimits& limits,
                          const typename Family::Params& params);
  /// Makes room for what the family's candidates need.
  template <class Family>
  static void add_scratch(const typename Family::Problem& problem, const cu::DeviceLimits& limits,
                          KernelScratch& most);

  Slot add(Use use);
  std::vector<Slot> open_of(std::span<const Slot> slots) const;
  bool prepare_open(const std::vector<Slot>& open, int jobs, bool compiles);

  const cu::Context& context_;
  jit::KernelStore& kernels_;
  TuningStore* records_;
  TuningScope scope_;
  Overrides overrides_;
  cu::DeviceLimits limits_;
  std::deque<Use> uses_;                       // addresses stay: programs hold them
  std::map<std::string, Slot> slots_;          // by title and space
  std::map<std::string, jit::Kernel> loaded_;  // by variant
};

template <class Family>
KernelLibrary::Launch KernelLibrary::launch_of(const typename Family::Problem& problem,
                                               const cu::DeviceLimits& limits,
                                               const typename Family::Params& params) {
  Launch launch;
  if constexpr (requires { Family::launch_shape(problem, params, limits); }) {
    launch.shape = Family::launch_shape(problem, params, limits);
  } else {
    launch.shape = Family::launch_shape(problem, params);
  }
  KernelScratch& scratch = launch.scratch;
  if constexpr (requires { Family::workspace_bytes(problem, params); })
    scratch.ones = Family::workspace_bytes(problem, params);
  if constexpr (requires { Family::exchange_value_bytes(problem, params); }) {
    scratch.ones = Family::exchange_value_bytes(problem, params);
    scratch.ones_more = Family::exchange_sum_bytes(problem, params);
    launch.waits = scratch.ones > 0;
  }
  if constexpr (requires { Family::exchange_bytes(problem, params); }) {
    scratch.any = Family::exchange_bytes(problem, params);
    launch.waits = scratch.any > 0;
  }
  if constexpr (requires { Family::candidate_bytes(problem, params); }) {
    scratch.any = static_cast<std::int64_t>(Family::candidate_bytes(problem, params));
    scratch.any_more = scratch.any;
  }
  if constexpr (requires { Family::sum_bytes(problem); }) {
    scratch.any = Family::sum_bytes(problem);
    scratch.any_more = Family::activation_bytes(problem);
  }
  return launch;
}

template <class Family>
bool KernelLibrary::fill(const typename Family::Problem& problem, const cu::DeviceLimits& limits,
                         const jit::Variant& variant, Launch& launch) {
  return fill_as<Family>(problem, problem, limits, variant, launch);
}

template <class Family>
bool KernelLibrary::fill_as(const typename Family::Problem& problem,
                            const typename Family::Problem& other, const cu::DeviceLimits& limits,
                            const jit::Variant& variant, Launch& launch) {
  if (variant.family != Family::kStem || !Family::runs_on(limits)) return false;
  for (const auto& params : Family::space(other, limits).candidates()) {
    if (jit::param_values(params) != variant.params) continue;
    launch = launch_of<Family>(problem, limits, params);
    launch.scratch.make_room_for(launch_of<Family>(other, limits, params).scratch);
    return true;
  }
  return false;
}

template <class Family>
void KernelLibrary::add_scratch(const typename Family::Problem& problem,
                                const cu::DeviceLimits& limits, KernelScratch& most) {
  if (!Family::runs_on(limits)) return;
  for (const auto& params : Family::space(problem, limits).candidates())
    most.make_room_for(launch_of<Family>(problem, limits, params).scratch);
}

}  // namespace ingot::executor
