#pragma once

#include <string_view>

namespace ingot::test {

/// Records that the running test case cannot be run here and why; the suite's last line counts it.
/// Returns true so that a test reads `if (!have_gpu && skip("no GPU")) return;`.
bool skip(std::string_view reason);

/// How often skip() was called so far: a case with any call counts as skipped, whatever their
/// number.
int skip_reasons();

}  // namespace ingot::test
