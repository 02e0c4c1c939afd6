#pragma once

namespace ingot {

/// The whole program: parses, runs the command, prints an error as one line. Returns the exit
/// status: 0 done, 1 failed, 2 wrong usage or bad input, 128 + N ended by signal N.
int run_program(int argc, const char* const* argv);

}  // namespace ingot
