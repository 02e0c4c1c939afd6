#pragma once

namespace ingot::test {

/// Whether the tests are built with a sanitizer, which changes times and memory.
constexpr bool is_sanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

}  // namespace ingot::test
