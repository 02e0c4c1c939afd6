#pragma once

namespace ingot::test {

/// Whether a sanitizer is compiled in, which spoils measurements of memory and time.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

/// How many times as long tests wait for what a program does: under a sanitizer it takes longer,
/// most of all where the machine is shared.
#if defined(__SANITIZE_THREAD__)
inline constexpr double kPatience = 12;
#else
inline constexpr double kPatience = kSanitized ? 4 : 1;
#endif

}  // namespace ingot::test
