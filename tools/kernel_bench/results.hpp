#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/kernel_bench/linear_bench.hpp"

namespace ingot::bench {

/// One measured candidate, as a line of the results file.
struct Row {
  std::string stage;          ///< "screen": every candidate, shortly; "final": the best, thoroughly
  std::size_t cell = 0;       ///< index in cells()
  std::size_t candidate = 0;  ///< index in candidates() of the cell
  bool x_bf16 = false;
  std::string brief;
  std::string error;
  double us = 0;
  double early_us = 0;  ///< with programmatic dependent launch; 0: not measured
  double spread = 0;
};

/// What does not belong to one candidate.
struct Card {
  std::string name;
  std::vector<double> empty_node_us;
  std::vector<ColdRead> curve;
  std::vector<double> act_quant_us;  ///< by cell
};

/// JSON lines, appended one whole line at a time by whichever process measured.
class ResultsFile {
 public:
  explicit ResultsFile(std::filesystem::path file) : file_(std::move(file)) {}

  void add(const Row& row, const Cell& cell, const Candidate& candidate,
           const Outcome& outcome) const;
  void add_failure(const Row& row, const Cell& cell, const Candidate& candidate) const;
  void add(const Card& card) const;

  std::vector<Row> rows() const;
  Card card() const;

 private:
  void append(const std::string& line) const;
  std::filesystem::path file_;
};

/// The table for people: for every cell the best candidate that reads quantised input and the best
/// that reads bf16, beside the peer and the floor.
/// @param only  names of is_wanted()
void print_table(const std::vector<Row>& rows, const Card& card, const std::vector<Cell>& cells,
                 const std::vector<std::string>& only);

}  // namespace ingot::bench
