#pragma once

#include <cstdint>

namespace ingot::test {

/// Counts what this program allocates with operator new, on all threads, while it lives. One at a
/// time.
class CountedNew {
 public:
  CountedNew();
  CountedNew(const CountedNew&) = delete;
  CountedNew& operator=(const CountedNew&) = delete;
  ~CountedNew();

  std::int64_t count() const;
};

/// What this thread allocates meanwhile does not count.
class UncountedNew {
 public:
  UncountedNew();
  UncountedNew(const UncountedNew&) = delete;
  UncountedNew& operator=(const UncountedNew&) = delete;
  ~UncountedNew();
};

}  // namespace ingot::test
