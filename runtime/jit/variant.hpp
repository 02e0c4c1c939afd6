#pragma once

#include <string>
#include <vector>

#include "runtime/jit/param_block.hpp"

namespace ingot::jit {

/// One kernel as it could be compiled: a family with a value for each of its parameters.
struct Variant {
  std::string family;  ///< the template's stem: "rms_norm"
  std::vector<ParamValue> params;

  bool operator==(const Variant&) const = default;
};

/// "rms_norm HIDDEN=4096 THREADS_PER_ROW=256 …", for messages.
std::string describe(const Variant& variant);

}  // namespace ingot::jit
