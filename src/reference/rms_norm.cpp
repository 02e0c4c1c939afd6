#include "src/reference/rms_norm.hpp"

#include <cmath>
#include <cstddef>

#include "src/reference/kernels.hpp"
#include "src/reference/numerics.hpp"

namespace ingot::reference {

float inverse_rms(std::span<const float> x, float eps) {
  const float squares = dot(x.data(), x.data(), static_cast<int>(x.size()));
  return 1.0F / std::sqrt(squares / static_cast<float>(x.size()) + eps);
}

void rms_norm_row(std::span<const float> x, std::span<const float> w, float eps,
                  std::span<float> y) {
  const float scale = inverse_rms(x, eps);
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = bf16_round(w[i] * (x[i] * scale));
}

void rms_norm(ThreadPool& pool, std::span<float> x, std::span<const float> w, float eps) {
  const std::size_t width = w.size();
  const auto rows = static_cast<std::int64_t>(x.size() / width);
  pool.parallel_for(rows, static_cast<std::int64_t>(1 + 65536 / width),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (auto r = static_cast<std::size_t>(begin);
                           r < static_cast<std::size_t>(end); ++r) {
                        const auto row = x.subspan(r * width, width);
                        rms_norm_row(row, w, eps, row);
                      }
                    });
}

void head_norm(std::span<float> q, float eps) {
  const float sum = sum_of_bf16_squares(q.data(), static_cast<int>(q.size()));
  const float mean = bf16_round(sum / static_cast<float>(q.size()));
  const float scale = bf16_round(1.0F / std::sqrt(bf16_round(mean + eps)));
  for (float& v : q)
    v = bf16_round(v * scale);
}

}  // namespace ingot::reference
