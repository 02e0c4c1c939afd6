#pragma once

#include <functional>
#include <string>

namespace ingot::test {

/// What `body` wrote to standard error. Not for tests that run beside other threads' output.
std::string standard_error_of(const std::function<void()>& body);

}  // namespace ingot::test
