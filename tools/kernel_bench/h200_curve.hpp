#pragma once

#include <vector>

#include "tuner/measure.hpp"

namespace ingot::bench {

/// Cold reads on the H200 on which the peers' times were taken, of one graph node, its cost
/// included.
inline const std::vector<ColdRead>& h200_cold_reads() {
  static const std::vector<ColdRead> curve{{0.07e6, 1.20},    {0.39e6, 1.52},   {0.79e6, 1.58},
                                           {1.57e6, 1.79},    {3.15e6, 2.19},   {6.29e6, 3.07},
                                           {12.58e6, 4.48},   {25.17e6, 7.38},  {50.33e6, 13.25},
                                           {100.66e6, 24.18}, {201.33e6, 46.44}};
  return curve;
}
constexpr double kH200BytesPerUs = 4.6e6;  ///< beyond the curve

}  // namespace ingot::bench
