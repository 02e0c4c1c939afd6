#include "src/cli/json_line.hpp"

#include <nlohmann/json.hpp>

#include "runtime/base/printable.hpp"

namespace ingot {

std::string json_line(const nlohmann::ordered_json& document) {
  return printable_json(
      document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace ingot
