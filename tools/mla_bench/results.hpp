#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/mla_bench/mla_bench.hpp"

namespace ingot::bench {

/// One measured candidate, as a line of the results file.
struct MlaRow {
  std::string stage;     ///< "screen": every candidate, shortly; "final": the best, thoroughly
  std::size_t cell = 0;  ///< index in mla_cells()
  int layout = 0;
  std::size_t candidate = 0;  ///< index in mla_candidates() of cell and layout
  bool is_default = false;
  std::string brief;
  std::string error;
  double us = 0;
  double min_us = 0;
  double early_us = 0;  ///< with programmatic dependent launch; 0: not measured
  double spread = 0;
  double relative_error = 0;
};

/// What does not belong to one candidate.
struct MlaCard {
  std::string name;
  std::vector<double> empty_node_us;
  std::vector<ColdRead> curve;
};

/// JSON lines, appended one whole line at a time by whichever process measured.
class MlaResults {
 public:
  explicit MlaResults(std::filesystem::path file) : file_(std::move(file)) {}

  void add(const MlaRow& row, const MlaCell& cell, const MlaCandidate& candidate) const;
  void add_simt(std::size_t cell, double us) const;
  void add(const MlaCard& card) const;

  std::vector<MlaRow> rows() const;
  std::vector<double> simt_us(std::size_t cells) const;  ///< 0: not measured
  MlaCard card() const;

 private:
  void append(const std::string& line) const;
  std::filesystem::path file_;
};

/// The table for people: what was measured beside it all, then for every cell the best candidate,
/// the default, the peer, the floor and the per-head kernel.
void print_mla_table(const MlaResults& results, const std::vector<MlaCell>& cells);
void print_mla_head(const MlaResults& results);
/// One line; nothing when no candidate of the cell was right.
void print_mla_cell(const MlaResults& results, std::size_t index, const MlaCell& cell);

}  // namespace ingot::bench
