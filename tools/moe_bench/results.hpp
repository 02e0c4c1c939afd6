#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/moe_bench/moe_bench.hpp"

namespace ingot::bench {

/// One measured candidate, as a line of the results file.
struct MoeRow {
  std::string stage;          ///< "screen": every candidate, shortly; "final": the best, thoroughly
  std::size_t cell = 0;       ///< index in moe_cells()
  std::size_t candidate = 0;  ///< index in moe_candidates() of the cell; 0: the default
  std::string brief;
  std::string error;
  double experts = 0;   ///< chosen in a node, on average
  double early_us = 0;  ///< with programmatic dependent launch
  double plain_us = 0;  ///< with plain edges; 0: not measured
  double min_us = 0;
  double spread = 0;
  double relative_error = 0;
};

/// JSON lines, appended one whole line at a time by whichever process measured.
class MoeResults {
 public:
  explicit MoeResults(std::filesystem::path file) : file_(std::move(file)) {}

  void add(const MoeRow& row, const MoeCell& cell, const MoeCandidate* candidate) const;
  std::vector<MoeRow> rows() const;

 private:
  std::filesystem::path file_;
};

/// The table for people: for every cell the best candidate, the default, the peer and the floor.
void print_moe_table(const MoeResults& results, const std::vector<MoeCell>& cells);

}  // namespace ingot::bench
