#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/jit/variant.hpp"
#include "tuner/tuning_request.hpp"

namespace ingot {

/// A parameter's value that a user forces.
struct Pin {
  std::string family;
  std::string param;
  std::int64_t value = 0;

  std::string text() const;  ///< "rms_norm.VECTOR=8"
  bool operator==(const Pin&) const = default;
};

/// Choices that a user forces, for comparisons. A pin picks its family too: where a request has a
/// candidate of that family with the pinned values, the others are out. Where it has none (a tile
/// that is not legal for that size), the pin has no say there.
struct Overrides {
  std::vector<Pin> pins;
  std::vector<std::string> disabled;  ///< families

  bool empty() const { return pins.empty() && disabled.empty(); }
  /// Whether a pin names this family.
  bool pins_family(std::string_view family) const;
  /// Whether this family is disabled.
  bool disables(std::string_view family) const;

  /// The candidates of a request that are left, by index. Not empty.
  /// Error: invalid_argument where every family of the request is disabled.
  [[nodiscard]] Result<std::vector<std::size_t>> allowed(const TuningRequest& request) const;

  /// Looks at a whole plan. Returns a sentence for each pin that has a say in only some of the
  /// requests that its family serves. Errors: invalid_argument for a pin that fits none (with the
  /// values that would), or whose family serves none; what allowed() returns.
  [[nodiscard]] Result<std::vector<std::string>> check(
      std::span<const TuningRequest> requests) const;
};

/// Reads FAMILY.PARAM=VALUE and FAMILY words. `families` are all there are, with their defaults.
/// Errors: invalid_argument for a family, a parameter or a value that there is not (with the names
/// that there are), for two pins of one parameter, and for a pin of a disabled family.
[[nodiscard]] Result<Overrides> parse_overrides(std::span<const std::string> pins,
                                                std::span<const std::string> disabled,
                                                std::span<const jit::Variant> families);

}  // namespace ingot
