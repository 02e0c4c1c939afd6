#pragma once

#include <cstddef>
#include <vector>

namespace ingot::bench {

constexpr std::size_t kRandomJobs = 4099;

/// 4,099 jobs of random codes, with scales 2^-10 to 2^-6.
std::vector<std::byte> random_jobs();

}  // namespace ingot::bench
