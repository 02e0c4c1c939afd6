#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/cuda/context.hpp"

namespace ingot {

/// Whether `from` can use the memory of `to`: asks the driver, then writes numbers there and reads
/// them back, within 10 seconds. Leaves `from` current.
/// Error: unsupported, naming the pair, what went wrong and what is likely to be the cause.
[[nodiscard]] Result<void> check_peers(const cu::Context& from, const cu::Context& to);

/// The first pair of these cards that check_peers() refuses, in words. Leaves the first current.
std::optional<std::string> find_broken_peers(const std::vector<cu::Context>& contexts);

}  // namespace ingot
