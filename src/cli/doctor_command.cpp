#include "src/cli/doctor_command.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/printable.hpp"
#include "src/cli/doctor_checks.hpp"
#include "src/cli/json_line.hpp"

namespace ingot {
namespace {

using nlohmann::ordered_json;

std::string_view state_name(Finding::State state) {
  switch (state) {
    case Finding::State::good:
      return "ok";
    case Finding::State::absent:
      return "absent";
    case Finding::State::bad:
      return "wrong";
  }
  return "wrong";
}

int print_settings(const LayeredSettings& settings, bool json) {
  ordered_json list = ordered_json::array();
  for (const SettingSpec& spec : setting_specs()) {
    const std::string value = show(settings.values(), spec);
    const auto layers = settings.layers(spec.key);
    std::string origin = layers.empty() ? "default" : layers.front().origin;
    if (json) {
      ordered_json over = ordered_json::array();
      for (std::size_t i = 1; i < layers.size(); ++i) {
        over.push_back({{"value", layers[i].value}, {"from", layers[i].origin}});
      }
      list.push_back({{"key", std::string(spec.key)},
                      {"value", value},
                      {"from", origin},
                      {"over", std::move(over)}});
      continue;
    }
    for (std::size_t i = 1; i < layers.size(); ++i) {
      origin += fmt::format("{} {} from {}", i == 1 ? ", wins over" : " and", layers[i].value,
                            layers[i].origin);
    }
    fmt::print("{:<28} = {:<16} {}\n", spec.key, printable(value), printable(origin));
  }
  if (json) fmt::print("{}\n", json_line({{"settings", std::move(list)}}));
  return 0;
}

}  // namespace

int run_doctor(const DoctorOptions& options) {
  if (options.show_settings) return print_settings(options.settings, options.json);
  const std::vector<Finding> findings = examine(options.settings.values(), options.environment);
  const bool usable = std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.state == Finding::State::bad;
  });
  if (options.json) {
    ordered_json list = ordered_json::array();
    for (const Finding& finding : findings) {
      list.push_back({{"name", finding.name},
                      {"state", state_name(finding.state)},
                      {"detail", finding.detail},
                      {"advice", finding.advice}});
    }
    fmt::print("{}\n", json_line({{"usable", usable}, {"findings", std::move(list)}}));
    return usable ? 0 : 1;
  }
  for (const Finding& finding : findings) {
    fmt::print("{:<14} {:<7} {}\n", finding.name, state_name(finding.state),
               printable(finding.detail));
    if (!finding.advice.empty())
      fmt::print("{:<14} {:<7} -> {}\n", "", "", printable(finding.advice));
  }
  fmt::print("{}\n", usable ? "ingot can run here" : "ingot cannot run here as asked");
  return usable ? 0 : 1;
}

}  // namespace ingot
