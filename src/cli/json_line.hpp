#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ingot {

/// A document on one line. Paths and names need not be UTF-8 and JSON must be: what is not is
/// replaced, as U+FFFD.
std::string json_line(const nlohmann::ordered_json& document);

}  // namespace ingot
