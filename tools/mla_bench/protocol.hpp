#pragma once

#include <string>

#include "tools/mla_bench/mla_bench.hpp"
#include "tools/mla_bench/results.hpp"

namespace ingot::bench {

/// What the bench asks its measuring process.
struct MlaQuestion {
  enum class Kind { card, simt, candidate };
  Kind kind = Kind::card;
  std::size_t cell = 0;       ///< index in mla_cells()
  int layout = 0;             ///< of a candidate
  std::size_t candidate = 0;  ///< index in mla_candidates() of cell and layout
  bool thoroughly = false;
};
/// Answers: a card, the per-head kernel's microseconds, an outcome. Decoding throws
/// EngineError(corrupt) on anything that encoding does not write.
std::string encode(const MlaQuestion& question);
MlaQuestion decode_question(const std::string& frame);
std::string encode(const MlaCard& card);
MlaCard decode_card(const std::string& frame);
std::string encode_us(double us);
double decode_us(const std::string& frame);
std::string encode(const MlaOutcome& outcome);
MlaOutcome decode_outcome(const std::string& frame);

}  // namespace ingot::bench
