#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "src/bench/card_rates.hpp"
#include "src/bench/decode_bench.hpp"

namespace ingot {

/// What was measured, and where: in front of every table and in every JSON line.
struct BenchSubject {
  std::string device;         ///< "NVIDIA H200"
  std::string arch;           ///< "sm_90a"
  std::string driver_branch;  ///< "580"
  std::string compiler;       ///< version of NVRTC; empty where there is none
  std::string version;        ///< of ingot
  std::string model;
  bool synthetic = false;  ///< its weights are made up
  int layers = 0;
  int tp_size = 1;
  std::vector<std::string> forced = {};  ///< by the user: "--pin rms_norm.VECTOR=8"
  double ready_s = 0;                    ///< from opening the weights to the end of a first step
  CardRates rates;
};

/// "2K", "1,000"
std::string tokens_text(std::int64_t tokens);

/// What the card is, what it reads and multiplies.
void print_card(const BenchSubject& subject, std::FILE* out);
/// The same, and what runs on it.
void print_subject(const BenchSubject& subject, std::FILE* out);
/// A line for each cell; then, for each, where its time goes and which kernels run.
void print_decode(const std::vector<DecodeResult>& results, std::FILE* out);
/// What determinism costs: the cells both ways.
void print_determinism(const std::vector<DecodeResult>& usual,
                       const std::vector<DecodeResult>& deterministic, std::FILE* out);
void print_prefill(const PrefillResult& result, std::FILE* out);

/// One line of JSON each, without a newline.
std::string decode_json(const BenchSubject& subject, const DecodeResult& result);
std::string prefill_json(const BenchSubject& subject, const PrefillResult& result);

/// What one step did: operations for each byte that it reads, and operations a second.
struct RooflinePoint {
  std::string label;
  double operations_per_byte = 0;
  double operations_per_us = 0;
};

/// A roofline as an SVG image: the card's ceilings, and the points below them. Without points the
/// ceilings alone.
std::string roofline_svg(const BenchSubject& subject, const std::vector<RooflinePoint>& points);

}  // namespace ingot
