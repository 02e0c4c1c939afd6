#include "src/cli/builtin_model.hpp"

#include <fmt/format.h>

#include <system_error>

namespace ingot {
namespace fs = std::filesystem;

std::vector<fs::path> builtin_model_places(const fs::path& program) {
  if (program.empty()) return {};
  // bin/ingot or build/ingot; both have their neighbours one level up.
  const fs::path root = program.parent_path().parent_path();
  return {root / "share/ingot/models/ingot-tiny", root / "configs/models/ingot-tiny"};
}

Result<fs::path> find_builtin_model(const fs::path& program) {
  const std::vector<fs::path> places = builtin_model_places(program);
  std::string looked;
  for (const fs::path& place : places) {
    std::error_code error;
    if (fs::is_regular_file(place / "config.json", error)) return place;
    looked += fmt::format("{}{}", looked.empty() ? "" : " nor in ", place.string());
  }
  return fail(ErrorCode::not_found,
              looked.empty()
                  ? std::string("looking for the built-in model: where this program lies is not "
                                "known; name a checkpoint's folder with --model DIR")
                  : fmt::format("looking for the built-in model: it is neither in {}; name a "
                                "checkpoint's folder with --model DIR",
                                looked));
}

}  // namespace ingot
