#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace ingot {

/// A callable that a function is given and does not keep: unlike std::function it owns nothing, so
/// that making one allocates nothing. What it refers to must outlive its calls.
template <class Signature>
class FunctionRef;

template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  /// Implicit, so that a lambda can stand where one is asked for. A plain function cannot: only
  /// objects have an address that fits.
  template <class Callable>
  requires(!std::same_as<std::remove_cvref_t<Callable>, FunctionRef> &&
           std::is_invocable_r_v<R, Callable&, Args...>) FunctionRef(Callable&& callable)
      : callable_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* to, Args... args) -> R {
          return std::invoke(*static_cast<std::remove_reference_t<Callable>*>(to),
                             std::forward<Args>(args)...);
        }) {}

  R operator()(Args... args) const { return call_(callable_, std::forward<Args>(args)...); }

 private:
  void* callable_;
  R (*call_)(void*, Args...);
};

}  // namespace ingot
