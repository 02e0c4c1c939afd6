#include "src/cli/json_line.hpp"

#include <nlohmann/json.hpp>

namespace ingot {

std::string json_line(const nlohmann::ordered_json& document) {
  return document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace ingot
