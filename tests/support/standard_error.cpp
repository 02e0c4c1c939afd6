#include "tests/support/standard_error.hpp"

#include <unistd.h>

#include <cstdio>
#include <stdexcept>

#include "tests/support/temp_dir.hpp"

namespace ingot::test {

std::string standard_error_of(const std::function<void()>& body) {
  const TempDir dir;
  const auto file = dir / "stderr";
  std::fflush(stderr);
  const int saved = ::dup(STDERR_FILENO);
  if (std::freopen(file.c_str(), "w", stderr) == nullptr) throw std::runtime_error("freopen");
  body();
  std::fflush(stderr);
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
  return read_file(file);
}

}  // namespace ingot::test
