#pragma once

#include <string>
#include <vector>

#include "tests/support/sparse_mla.hpp"

namespace ingot::test {

/// An input that a sparse MLA decode kernel must get right, and how close it has to come.
struct SparseMlaCase {
  std::string name;
  SparseMlaInputs inputs;
  double tolerance = 3e-3;        ///< of the relative Frobenius norm
  double group_tolerance = 8e-3;  ///< the same of the worst 64 dimensions of a head
};

/// Full and partly filled lists, unused slots, garbage past the counts, empty rows, one key, group
/// scales from 2^-22 to 2^15 and 2^20 apart within an entry, NaN in one row's query and in one
/// row's key, the first and last entry of the pools. Some rows each; row 0 has the full lists.
std::vector<SparseMlaCase> sparse_mla_cases(const SparseMlaShape& shape);

}  // namespace ingot::test
