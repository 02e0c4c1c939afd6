#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace ingot {

/// The most that a document may hold. Checked in one pass that allocates nothing, before parsing:
/// a parser takes many times the bytes of what it reads.
struct JsonBounds {
  std::size_t token_bytes = 1u << 20;  ///< of one string, number or run of blanks
  std::size_t tokens = 400'000;        ///< strings, numbers, literals, objects and arrays
  std::size_t objects = 400'000;
};

/// What is beyond the bounds ("holds more than 400000 values"), or empty. Blanks behind the
/// document do not count. It is not a parser: what is no JSON may pass.
/// @param passed is told, about every megabyte, up to where the text has been read
std::string beyond_bounds(std::string_view text, const JsonBounds& bounds,
                          const std::function<void(std::size_t)>& passed = {});

/// `text` without the blanks behind it, with which safetensors headers are padded.
std::string_view without_padding(std::string_view text);

/// Parses a small JSON document (config, index) and refuses what a lenient parser lets pass: a key
/// given twice in one object, nesting beyond 64, more than JsonBounds, anything after the document.
/// Error: corrupt, with the position; `origin` names the file.
[[nodiscard]] Result<nlohmann::json> parse_strict_json(std::string_view text,
                                                       std::string_view origin);

/// nlohmann's words without its "[json.exception…]" prefix, on one line of bounded length.
std::string json_error_text(std::string_view what);

}  // namespace ingot
