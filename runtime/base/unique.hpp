#pragma once

#include <utility>

namespace ingot {

/// Sole owner of a handle of a C library. `Destroy` is called once with a handle that tests true;
/// it must not throw, and its result is dropped: the order of teardown is not ours.
template <class Handle, auto Destroy>
class Unique {
 public:
  Unique() = default;
  explicit Unique(Handle handle) : handle_(handle) {}
  Unique(Unique&& other) noexcept : handle_(std::exchange(other.handle_, Handle{})) {}
  Unique& operator=(Unique&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Unique() {
    if (handle_) (void)Destroy(handle_);
  }

  const Handle& get() const { return handle_; }
  explicit operator bool() const { return static_cast<bool>(handle_); }
  /// Gives the handle up without destroying it.
  Handle release() { return std::exchange(handle_, Handle{}); }

 private:
  Handle handle_{};
};

}  // namespace ingot
