#include "src/text/effort.hpp"

#include <fmt/core.h>

#include <array>

#include "src/text/json_value.hpp"
#include "src/text/utf8.hpp"

namespace ingot {
namespace {

struct Named {
  Thinking thinking;
  std::string_view name;
};
constexpr std::array<Named, 4> kEfforts = {{{Thinking::none, "none"},
                                            {Thinking::low, "low"},
                                            {Thinking::high, "high"},
                                            {Thinking::max, "max"}}};

bool has(EffortTable table, Thinking thinking) {
  return table == EffortTable::v0731 || thinking != Thinking::low;
}

Unexpected refuse(std::string_view name, std::string_view known) {
  constexpr std::size_t kLongest = 60;
  const std::string_view begin = cut_utf8(name, kLongest);
  return fail(ErrorCode::invalid_argument,
              fmt::format("thinking effort {}{}: {}", to_python_json(begin),
                          begin.size() < name.size() ? "…" : "", known));
}

Unexpected refuse(std::string_view name, EffortTable table) {
  return refuse(name, has(table, Thinking::low) ? "this checkpoint knows none, low, high and max"
                                                : "this checkpoint knows none, high and max");
}

}  // namespace

Result<void> check_effort(Thinking thinking, EffortTable table) {
  if (has(table, thinking)) return {};
  for (const Named& each : kEfforts) {
    if (each.thinking == thinking) return refuse(each.name, table);
  }
  return refuse("?", table);
}

Result<Thinking> effort_from_name(std::string_view name, EffortTable table) {
  for (const Named& each : kEfforts) {
    if (each.name == name && has(table, each.thinking)) return each.thinking;
  }
  return refuse(name, table);
}

Result<Thinking> effort_of_request(std::string_view name, EffortTable table) {
  if (table == EffortTable::april) {
    if (name == "low" || name == "medium") return Thinking::high;
    if (name == "xhigh") return Thinking::max;
  }
  auto known = effort_from_name(name, table);
  if (!known && table == EffortTable::april) {
    return refuse(name,
                  "for this checkpoint a request may say none, low, medium, high, xhigh and max");
  }
  return known;
}

}  // namespace ingot
