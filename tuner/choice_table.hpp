#pragma once

#include <span>
#include <string>

#include "tuner/tuning_record.hpp"

namespace ingot {

/// The choices of tuning records as Markdown: for each card, TP size and set of competing families
/// a table with a row for each problem. Columns are the fields in which the problems differ, every
/// parameter in which their candidates do (NSPLIT, tiles, …), the family where several compete, the
/// time, its spread, the default's time over it, and how many ties there are. Pure.
std::string choice_tables(std::span<const TuningRecord> records);

}  // namespace ingot
