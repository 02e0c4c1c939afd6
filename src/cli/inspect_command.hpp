#pragma once

#include <cstdio>
#include <filesystem>

namespace ingot {

struct InspectOptions {
  std::filesystem::path model;
  int tp = 0;         ///< --tp: also print what each of so many ranks loads; 0 = do not
  bool hash = false;  ///< also print every tensor's digest, and check every scale and expert id
  bool json = false;
  int threads = 1;  ///< for --hash
};

/// `ingot inspect`: what a checkpoint holds and all that is wrong with it, as a table or one JSON
/// object on `out`. What is wrong also goes to standard error, unless that is the same terminal.
/// Returns the exit status: 0 the checkpoint is whole, 2 it is not.
int run_inspect(const InspectOptions& options, std::FILE* out);

}  // namespace ingot
