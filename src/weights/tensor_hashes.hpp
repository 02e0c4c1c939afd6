#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/checkpoint/checkpoint.hpp"

namespace ingot {

/// The XXH3_128 digest of every tensor's bytes as 32 hexadecimal digits, in the order of
/// checkpoint.tensors(). Reads the whole checkpoint once, in file order.
/// @param threads at least 1
/// @param progress called from one thread at a time with bytes done and bytes in all; may be empty
std::vector<std::string> hash_tensors(
    const Checkpoint& checkpoint, int threads,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress);

}  // namespace ingot
