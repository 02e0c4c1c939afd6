#pragma once

#include <type_traits>

namespace ingot {

/// Whether two types are passed alike in the C calling convention: both pointers, both integers or
/// enumerations of one size, both floating point of one size, or both structs of one size and
/// alignment.
template <class Ours, class Theirs>
constexpr bool same_kind() {
  if constexpr (std::is_void_v<Ours> || std::is_void_v<Theirs>) {
    return std::is_void_v<Ours> && std::is_void_v<Theirs>;
  } else if constexpr (std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>) {
    return std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>;
  } else {
    constexpr bool ours_whole = std::is_integral_v<Ours> || std::is_enum_v<Ours>;
    constexpr bool theirs_whole = std::is_integral_v<Theirs> || std::is_enum_v<Theirs>;
    return ours_whole == theirs_whole &&
           std::is_floating_point_v<Ours> == std::is_floating_point_v<Theirs> &&
           sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);
  }
}

template <class Ours, class Theirs>
struct SameSignature : std::false_type {};
template <class OurResult, class... Ours, class TheirResult, class... Theirs>
requires(sizeof...(Ours) ==
         sizeof...(Theirs)) struct SameSignature<OurResult (*)(Ours...), TheirResult (*)(Theirs...)>
    : std::bool_constant<same_kind<OurResult, TheirResult>() &&
                         (same_kind<Ours, Theirs>() && ...)> {
};

/// For the check files that hold our declarations of a C library against its own header.
template <class Ours, class Theirs>
inline constexpr bool kSameSignature = SameSignature<Ours, Theirs>::value;

}  // namespace ingot
