#pragma once

#include <cstdint>

namespace ingot {

/// A row of the embedding table: 0 ≤ id < ModelConfig::vocab_size.
using TokenId = std::int32_t;

}  // namespace ingot
