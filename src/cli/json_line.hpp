#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ingot {

/// A document on one line. Paths and names need not be UTF-8 and JSON must be: what is not is
/// replaced, as U+FFFD. What could steer a terminal or turn a line's direction is written \uNNNN.
std::string json_line(const nlohmann::ordered_json& document);

}  // namespace ingot
