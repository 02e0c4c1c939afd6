#pragma once

namespace ingot::test {

/// Whether a sanitizer is compiled in, which spoils measurements of memory and time.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace ingot::test
