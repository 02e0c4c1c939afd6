#include "src/batch/done_lines.hpp"

#include <algorithm>

namespace ingot {

bool DoneLines::has(std::int64_t line) const {
  const auto place = std::lower_bound(done_.begin(), done_.end(), 2 * line);
  return place != done_.end() && *place / 2 == line;
}

bool DoneLines::failed(std::int64_t line) const {
  return std::binary_search(done_.begin(), done_.end(), 2 * line + 1);
}

bool DoneLines::repeated(std::int64_t line) const {
  return std::binary_search(repeated_.begin(), repeated_.end(), line);
}

}  // namespace ingot
