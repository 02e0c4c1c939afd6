#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/context.hpp"
#include "runtime/jit/compiler.hpp"
#include "runtime/jit/kernel.hpp"
#include "runtime/jit/variant.hpp"
#include "tests/support/libraries.hpp"

namespace ingot::test {

/// The driver, if it shows at least `devices` devices; otherwise null, after skip() said why.
std::shared_ptr<const cu::DriverApi> driver_or_skip(int devices);

/// A cubin of `source` for the context's card, by NVRTC in this process. Throws EngineError.
jit::CompiledKernel compile_for(const cu::Context& context, const std::string& name,
                                const std::string& source);

/// The family's kernels, compiled for the context's card from the embedded templates: one for each
/// variant, in their order. Compiles in child processes, as many as there are cores.
std::vector<jit::Kernel> load_variants(const cu::Context& context,
                                       const std::vector<jit::Variant>& variants);
jit::Kernel load_variant(const cu::Context& context, const jit::Variant& variant);

}  // namespace ingot::test
