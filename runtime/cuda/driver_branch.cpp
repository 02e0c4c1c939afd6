#include "runtime/cuda/driver_branch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace ingot::cu {
namespace {

/// "580.65.06": digits, and at least one dot between.
bool is_version(std::string_view word) {
  return word.find('.') != std::string_view::npos && word.front() != '.' && word.back() != '.' &&
         word.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

std::string driver_branch(std::string_view module_text, int cuda_version) {
  // "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (…)", then
  // the compiler's version on a line of its own.
  std::istringstream first_line(std::string(module_text.substr(0, module_text.find('\n'))));
  for (std::string word; first_line >> word;) {
    if (is_version(word)) return word.substr(0, word.find('.'));
  }
  if (cuda_version <= 0) return "unknown";
  return fmt::format("cuda-{}.{}", cuda_version / 1000, cuda_version % 1000 / 10);
}

std::string driver_module_text() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace ingot::cu
