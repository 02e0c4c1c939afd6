#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "src/bench/bench_report.hpp"

namespace ingot {

/// The head of every JSON line of a bench.
/// @param what  "decode"
nlohmann::ordered_json subject_json(const BenchSubject& subject, std::string_view what);

}  // namespace ingot
