#pragma once

#include <string>
#include <vector>

#include "runtime/jit/compiler.hpp"
#include "runtime/jit/source_bundle.hpp"
#include "runtime/jit/variant.hpp"

namespace ingot::jit {

/// The options that every kernel is compiled with, in the order that the cubin key holds them.
std::vector<std::string> canonical_options();

/// The name of a family's template in its source tree: "rms_norm.cuh".
std::string template_name(const std::string& family);

/// What the compiler gets for one variant: the parameter block, then the template.
CompileJob make_job(const SourceBundle& bundle, const Variant& variant, const std::string& arch);

}  // namespace ingot::jit
