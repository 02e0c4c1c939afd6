#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// What a kernel is asked to do, with its type erased: named numbers. A family's `Problem` struct
/// names its members once, in a static function
///
///   template <class Self, class Visit>
///   static void for_each_field(Self& self, Visit&& visit) {
///     auto& [hidden, rows] = self;  // as many names as members, or it does not compile
///     visit("hidden", hidden);
///     visit("rows", rows);
///   }
///
/// so that no member can be forgotten in a tuning key.
namespace ingot {

struct ProblemField {
  std::string name;
  std::int64_t value = 0;

  bool operator==(const ProblemField&) const = default;
};

namespace problem_detail {

template <std::integral T, class Visit>
void visit_number(std::string_view name, T& value, Visit&& visit) {
  visit(std::string(name), value);
}
template <class Array, class Visit>
requires requires(Array& array) {
  array.data();
}
void visit_number(std::string_view name, Array& values, Visit&& visit) {
  for (std::size_t i = 0; i < values.size(); ++i)
    visit(std::string(name) + std::to_string(i), values[i]);
}

}  // namespace problem_detail

/// Every member in its order; an array is as many fields: "rows0", "rows1".
template <class Problem>
std::vector<ProblemField> problem_fields(const Problem& problem) {
  std::vector<ProblemField> fields;
  Problem::for_each_field(problem, [&](std::string_view name, const auto& member) {
    problem_detail::visit_number(name, member, [&](std::string full, const auto& value) {
      fields.push_back({std::move(full), static_cast<std::int64_t>(value)});
    });
  });
  return fields;
}

/// The reverse; nullopt where the names are not exactly the problem's.
template <class Problem>
std::optional<Problem> problem_from(std::span<const ProblemField> fields) {
  Problem problem;
  std::size_t at = 0;
  bool good = true;
  Problem::for_each_field(problem, [&](std::string_view name, auto& member) {
    problem_detail::visit_number(name, member, [&](const std::string& full, auto& value) {
      good = good && at < fields.size() && fields[at].name == full;
      if (good) value = static_cast<std::remove_reference_t<decltype(value)>>(fields[at].value);
      ++at;
    });
  });
  if (!good || at != fields.size()) return std::nullopt;
  return problem;
}

/// "hidden=4096 rows=1".
std::string describe(std::span<const ProblemField> problem);

}  // namespace ingot
