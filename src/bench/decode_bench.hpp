#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/bench/card_rates.hpp"
#include "src/executor/device_engine.hpp"

namespace ingot {

/// A batch of sequences of one length.
struct DecodeCell {
  int batch = 1;
  std::int64_t context = 0;  ///< tokens of each sequence when its last step is timed
  bool operator==(const DecodeCell&) const = default;
};

/// What a step has to do at least on one rank, and how long this card takes for that.
struct StepFloor {
  double bytes = 0;
  double operations = 0;
  double us = 0;  ///< the longer of reading and of multiplying
};

struct DecodeResult {
  DecodeCell cell;
  std::string refusal;  ///< why it was not run; empty: it was
  DecodeTiming timing;
  StepFloor floor;
  double engine_us = 0;  ///< mean time of Engine::step(), its logits fetched to the host
  bool deterministic = false;

  double tokens_per_s() const { return cell.batch * 1e6 / timing.step_us; }
  double share_of_floor() const { return floor.us / timing.step_us; }
};

/// The floor of one decode step whose tokens chose `distinct_experts` experts of each layer.
StepFloor decode_floor(const ModelConfig& config, int tp_size, const DecodeCell& cell,
                       double distinct_experts, const CardRates& rates);

/// Room that cells need besides the weights: for a DeviceEngine's options.
std::int64_t context_tokens_of(const std::vector<DecodeCell>& cells);

/// Times `steps` decode steps of a cell. The pools have been filled (fill_context).
/// A cell whose pages do not fit is a refusal in the result.
DecodeResult measure_decode(DeviceEngine& engine, int tp_size, const DecodeCell& cell, int steps,
                            const CardRates& rates);

struct PrefillResult {
  std::int64_t tokens = 0;
  int chunk = 0;
  double us = 0;
  double floor_us = 0;  ///< multiplying alone, at the tensor cores' rates
  double operations = 0;
  int graph_steps = 0;  ///< passes that were replayed from graphs
  PassTiming last;      ///< the prompt's last pass

  double tokens_per_s() const { return static_cast<double>(tokens) * 1e6 / us; }
};

/// Times one prompt of `tokens` tokens, `chunk` of them a step, after two that are not timed: the
/// first runs as it is, the second records.
PrefillResult measure_prefill(DeviceEngine& engine, int tp_size, std::int64_t tokens, int chunk,
                              const CardRates& rates);

}  // namespace ingot
