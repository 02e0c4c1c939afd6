#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/support/sparse_mla.hpp"

namespace ingot::bench {

/// A large pool of random entries in one layout. Entry i is the same in every layout: random codes
/// without NaN, normal rope values, scales 2^-10 … 2^-6.
std::vector<std::uint8_t> make_pool(const test::KvLayout& layout, int entries, std::uint64_t seed);
test::KvEntry make_entry(std::uint64_t seed, int entry);

}  // namespace ingot::bench
