#include "tests/support/libraries.hpp"

#include <cstdlib>
#include <sstream>

#include "runtime/base/shared_library.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

namespace ingot::test {

std::vector<std::filesystem::path> library_directories() {
  std::vector<std::filesystem::path> directories;
  if (const char* given = std::getenv("INGOT_LIBRARY_PATH")) {
    std::istringstream words(given);
    for (std::string word; std::getline(words, word, ':');) {
      if (!word.empty()) directories.emplace_back(word);
    }
  }
  // Where tools/get-nvrtc puts the wheel of a machine without a toolkit.
  directories.push_back(golden_dir().parent_path().parent_path() / "build/nvrtc/lib");
  return library_search_path(std::move(directories));
}

std::shared_ptr<const jit::NvrtcApi> nvrtc_or_skip() {
  const auto files = jit::find_nvrtc(library_directories());
  if (!files) {
    skip("no NVRTC: " + files.error().message);
    return nullptr;
  }
  return value_or_throw(jit::NvrtcApi::open(*files));
}

}  // namespace ingot::test
