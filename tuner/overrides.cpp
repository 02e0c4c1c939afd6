#include "tuner/overrides.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace ingot {
namespace {

constexpr std::size_t kShown = 60;  // characters of a user's word in a message

std::string shown(std::string_view word) {
  return std::string(word.substr(0, kShown));
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const jit::ParamValue* find_param(const jit::Variant& variant, std::string_view name) {
  for (const jit::ParamValue& param : variant.params) {
    if (param.name == name) return &param;
  }
  return nullptr;
}

bool meets(const jit::Variant& variant, const Pin& pin) {
  const jit::ParamValue* param = find_param(variant, pin.param);
  return param != nullptr && param->value == pin.value;
}

Result<const jit::Variant*> find_family(std::span<const jit::Variant> families,
                                        std::string_view flag, std::string_view word,
                                        std::string_view stem) {
  std::vector<std::string_view> stems;
  for (const jit::Variant& family : families) {
    if (family.family == stem) return &family;
    stems.push_back(family.family);
  }
  return fail(ErrorCode::invalid_argument,
              fmt::format("{} {}: there is no kernel family \"{}\"; families: {}", flag,
                          shown(word), shown(stem), fmt::join(stems, ", ")));
}

/// A number, or for a bool true, false, 1 or 0.
bool parse_value(std::string_view text, const std::string& type, std::int64_t& value) {
  if (type == "bool" && (text == "true" || text == "false")) {
    value = text == "true" ? 1 : 0;
    return true;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return false;
  return type != "bool" || value == 0 || value == 1;
}

Result<Pin> parse_pin(const std::string& word, std::span<const jit::Variant> families) {
  const std::size_t dot = word.find('.');
  const std::size_t equals = word.find('=');
  if (dot == std::string::npos || equals == std::string::npos || equals < dot) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("--pin must be FAMILY.PARAM=VALUE, not \"{}\"", shown(word)));
  }
  Pin pin{.family = word.substr(0, dot), .param = word.substr(dot + 1, equals - dot - 1)};
  const auto family = find_family(families, "--pin", word, pin.family);
  if (!family) return tl::unexpected(family.error());
  const jit::ParamValue* param = find_param(**family, pin.param);
  if (param == nullptr) {
    std::vector<std::string_view> names;
    for (const jit::ParamValue& each : (*family)->params)
      names.push_back(each.name);
    return fail(ErrorCode::invalid_argument,
                fmt::format("--pin {}: {} has no parameter \"{}\"; its parameters: {}", shown(word),
                            pin.family, shown(pin.param), fmt::join(names, ", ")));
  }
  if (!parse_value(std::string_view(word).substr(equals + 1), param->type, pin.value)) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("--pin {}: the value must be {}", shown(word),
                            param->type == "bool" ? "true or false" : "a whole number"));
  }
  return pin;
}

/// The request's candidates that meet all pins of `family`.
std::vector<std::size_t> pinned(const TuningRequest& request, const std::string& family,
                                const std::vector<Pin>& pins) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < request.candidates.size(); ++i) {
    const jit::Variant& candidate = request.candidates[i];
    if (candidate.family != family) continue;
    const bool all = std::all_of(pins.begin(), pins.end(), [&](const Pin& pin) {
      return pin.family != family || meets(candidate, pin);
    });
    if (all) found.push_back(i);
  }
  return found;
}

}  // namespace

std::string Pin::text() const {
  return fmt::format("{}.{}={}", family, param, value);
}

bool Overrides::pins_family(std::string_view family) const {
  return std::any_of(pins.begin(), pins.end(),
                     [&](const Pin& pin) { return pin.family == family; });
}

bool Overrides::disables(std::string_view family) const {
  return contains(disabled, std::string(family));
}

Result<std::vector<std::size_t>> Overrides::allowed(const TuningRequest& request) const {
  std::vector<std::size_t> left;
  std::set<std::size_t> forced;
  for (const std::string& family : request.families()) {
    if (contains(disabled, family)) continue;
    if (!pins_family(family)) continue;
    for (const std::size_t index : pinned(request, family, pins))
      forced.insert(index);
  }
  for (std::size_t i = 0; i < request.candidates.size(); ++i) {
    if (contains(disabled, request.candidates[i].family)) continue;
    if (forced.empty() || forced.contains(i)) left.push_back(i);
  }
  if (left.empty()) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("--disable {} leaves no kernel for {}", fmt::join(disabled, ", "),
                            request.title()));
  }
  return left;
}

Result<std::vector<std::string>> Overrides::check(std::span<const TuningRequest> requests) const {
  for (const TuningRequest& request : requests) {
    if (const auto left = allowed(request); !left) return tl::unexpected(left.error());
  }
  std::vector<std::string> sentences;
  for (const Pin& pin : pins) {
    int served = 0;
    int met = 0;
    std::string first_unmet;
    std::set<std::int64_t> values;
    for (const TuningRequest& request : requests) {
      if (!contains(request.families(), pin.family)) continue;
      ++served;
      for (const jit::Variant& candidate : request.candidates) {
        if (candidate.family == pin.family) values.insert(find_param(candidate, pin.param)->value);
      }
      if (!pinned(request, pin.family, pins).empty()) {
        ++met;
      } else if (first_unmet.empty()) {
        first_unmet = request.title();
      }
    }
    if (served == 0) {
      return fail(
          ErrorCode::invalid_argument,
          fmt::format("--pin {}: no kernel of this plan is served by {}", pin.text(), pin.family));
    }
    if (met == 0) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("--pin {}: not legal for any kernel of this plan{}; legal values of "
                              "{} here: {}",
                              pin.text(), pins.size() > 1 ? " together with the other pins" : "",
                              pin.param, fmt::join(values, ", ")));
    }
    if (met < served) {
      sentences.push_back(
          fmt::format("--pin {}: legal for {} of {} kernels; {} and others run "
                      "without it",
                      pin.text(), met, served, first_unmet));
    }
  }
  return sentences;
}

Result<Overrides> parse_overrides(std::span<const std::string> pins,
                                  std::span<const std::string> disabled,
                                  std::span<const jit::Variant> families) {
  Overrides overrides;
  for (const std::string& word : disabled) {
    if (const auto family = find_family(families, "--disable", word, word); !family) {
      return tl::unexpected(family.error());
    }
    if (!contains(overrides.disabled, word)) overrides.disabled.push_back(word);
  }
  for (const std::string& word : pins) {
    auto pin = parse_pin(word, families);
    if (!pin) return tl::unexpected(pin.error());
    if (contains(overrides.disabled, pin->family)) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("--pin {} pins a family that --disable takes out", pin->text()));
    }
    for (const Pin& other : overrides.pins) {
      if (other.family == pin->family && other.param == pin->param) {
        return fail(
            ErrorCode::invalid_argument,
            fmt::format("--pin {} and --pin {} contradict each other", other.text(), pin->text()));
      }
    }
    overrides.pins.push_back(std::move(*pin));
  }
  return overrides;
}

}  // namespace ingot
