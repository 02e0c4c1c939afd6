#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace ingot {

/// Parses a small JSON document (config, index) and refuses what a lenient parser lets pass: a key
/// given twice in one object, nesting beyond 64, anything after the document.
/// Error: corrupt, with the position; `origin` names the file.
[[nodiscard]] Result<nlohmann::json> parse_strict_json(std::string_view text,
                                                       std::string_view origin);

/// nlohmann's words without its "[json.exception…]" prefix, on one line of bounded length.
std::string json_error_text(std::string_view what);

}  // namespace ingot
