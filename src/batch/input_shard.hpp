#pragma once

#include <cstdint>

namespace ingot {

/// Which lines of an input are one machine's: those whose number, from 1, leaves this remainder.
struct InputShard {
  std::int64_t index = 1;  ///< from 1
  std::int64_t count = 1;

  bool has(std::int64_t line) const { return (line - 1) % count == index - 1; }
};

}  // namespace ingot
