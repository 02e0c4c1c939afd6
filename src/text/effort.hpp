#pragma once

#include <string_view>

#include "runtime/base/error.hpp"
#include "src/text/chat_message.hpp"

namespace ingot {

/// Which efforts a checkpoint's encoder has (model specification 6.4).
enum class EffortTable {
  april,  ///< none, high, max
  v0731,  ///< none, low, high, max
};

/// Whether a checkpoint has an effort, wherever it is asked for: in a flag, a setting, a chat or a
/// line of a batch. Error: invalid_argument, with the effort and those that there are.
[[nodiscard]] Result<void> check_effort(Thinking thinking, EffortTable table);

/// The effort of that name. Error: as above.
[[nodiscard]] Result<Thinking> effort_from_name(std::string_view name, EffortTable table);

/// The effort that a request in the API's form asks for: the checkpoint's, and for the April one
/// also low and medium, which the API takes as high, and xhigh, as max. Error: invalid_argument,
/// with the effort and all that a request may say.
[[nodiscard]] Result<Thinking> effort_of_request(std::string_view name, EffortTable table);

}  // namespace ingot
