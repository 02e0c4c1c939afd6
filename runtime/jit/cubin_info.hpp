#pragma once

#include <cstddef>
#include <span>

#include "runtime/base/error.hpp"
#include "runtime/jit/compiler.hpp"

namespace ingot::jit {

/// Registers, stack and static shared memory as a cubin itself records them (ELF section .nv.info
/// and the size of .nv.shared.<kernel>). A cubin does not tell spills from other uses of the stack:
/// a kernel with a stack counts as one that spills all of it, on the safe side.
/// For compilers whose log says nothing. Error: corrupt.
[[nodiscard]] Result<Resources> resources_in_cubin(std::span<const std::byte> cubin);

}  // namespace ingot::jit
