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
  std::string program;            ///< what is run; empty: ingot_program()
  std::string_view input;         ///< for standard input
  bool keep_input_open = false;   ///< it does not end with that
  std::string working_directory;  ///< where it starts; empty: here
  std::vector<std::string> environment = {"HOME=/nonexistent", "TERM=dumb"};  ///< all of it
  std::size_t file_size_limit = 0;  ///< RLIMIT_FSIZE in bytes; 0 = none
  /// Called with its process id once the program writes this to standard error, or so many bytes to
  /// standard output.
  std::string wait_for;
  std::size_t wait_for_output = 0;
  std::function<void(int)> then;
  std::string output_file;    ///< opened as its standard output; empty: a pipe to us
  bool close_output = false;  ///< nobody reads its standard output
  bool as_nobody = false;  ///< without root's rights; needs root to begin with, or not to be root
};

/// The program under test: INGOT_TEST_PROGRAM, else build/ingot.
std::string ingot_program();

/// Runs it to its end. Throws std::runtime_error if it cannot start.
ProgramResult run_ingot(const std::vector<std::string>& arguments,
                        const ProgramOptions& options = {});

}  // namespace ingot::test
