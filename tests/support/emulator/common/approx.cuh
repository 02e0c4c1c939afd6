#pragma once

namespace ingot::kernels {

inline float reciprocal_approx(float x) {
  return 1.0f / x;
}

}  // namespace ingot::kernels
