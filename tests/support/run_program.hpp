#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::test {

struct ProgramResult {
  int status = 0;  ///< exit status; 128 + N where signal N ended it
  std::string out;
  std::string err;
  std::size_t peak_bytes = 0;  ///< resident memory at its highest
};

struct ProgramOptions {
  std::string_view input;         ///< for standard input
  std::string working_directory;  ///< where it starts; empty: here
  std::vector<std::string> environment = {"HOME=/nonexistent", "TERM=dumb"};  ///< all of it
  std::size_t file_size_limit = 0;  ///< RLIMIT_FSIZE in bytes; 0 = none
  /// Called once the program writes this to standard error, with its process id.
  std::string wait_for;
  std::function<void(int)> then;
  bool close_output = false;  ///< nobody reads its standard output
  bool as_nobody = false;  ///< without root's rights; needs root to begin with, or not to be root
};

/// Runs build/ingot (INGOT_TEST_PROGRAM) to its end. Throws std::runtime_error if it cannot start.
ProgramResult run_ingot(const std::vector<std::string>& arguments,
                        const ProgramOptions& options = {});

}  // namespace ingot::test
