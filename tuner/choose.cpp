#include "tuner/choose.hpp"

namespace ingot {

std::optional<Choice> choose(std::span<const std::optional<double>> times_us, double noise) {
  std::optional<double> fastest;
  for (const auto& time : times_us) {
    if (time && (!fastest || *time < *fastest)) fastest = time;
  }
  if (!fastest) return std::nullopt;
  Choice choice;
  bool chosen = false;
  for (std::size_t i = 0; i < times_us.size(); ++i) {
    if (!times_us[i] || *times_us[i] > *fastest * (1 + kTieWindow * noise)) continue;
    choice.ties.push_back(i);
    if (chosen || *times_us[i] > *fastest * (1 + noise)) continue;
    choice.chosen = i;
    chosen = true;
  }
  return choice;
}

}  // namespace ingot
