#pragma once

#include <cstddef>
#include <functional>

namespace ingot::test {

/// Runs `body` in a child process and returns the most resident bytes that the child had beyond
/// what it started with. Throws std::runtime_error if the child did not end well.
std::size_t peak_memory_of(const std::function<void()>& body);

}  // namespace ingot::test
