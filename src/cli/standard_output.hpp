#pragma once

#include <string_view>

namespace ingot {

/// The reader of our output has gone: thrown, so that the program can leave without a word.
struct ClosedPipe {};

/// Writes to standard output at once, around C's buffers. Throws ClosedPipe where nobody reads any
/// more (a closed pipe, a terminal that hung up), EngineError(io) for everything else.
void write_out(std::string_view text);

/// Writes to standard error, as it is; that it is gone is no error.
void write_error(std::string_view text);

}  // namespace ingot
