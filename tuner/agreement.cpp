#include "tuner/agreement.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace ingot {
namespace {

bool is_number(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::bf16;
}

/// Element `index` of an output whose dtype is a number's.
float number_at(const KernelOutput& output, std::size_t index) {
  std::uint32_t bits = 0;
  if (output.dtype == Dtype::f32) {
    std::memcpy(&bits, output.bytes.data() + index * 4, 4);
  } else {
    std::uint16_t upper = 0;
    std::memcpy(&upper, output.bytes.data() + index * 2, 2);
    bits = static_cast<std::uint32_t>(upper) << 16;
  }
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// Elements of one output in both runs of a kernel.
class Pair {
 public:
  Pair(const KernelOutput& nan, const KernelOutput& huge)
      : nan_(nan), huge_(huge), size_(static_cast<std::size_t>(dtype_bytes(nan.dtype))) {}

  std::size_t count() const { return nan_.bytes.size() / size_; }
  bool is_written(std::size_t index) const {
    return !holds(nan_, index, Poison::nan) || !holds(huge_, index, Poison::huge);
  }
  bool runs_agree(std::size_t index) const {
    return std::memcmp(at(nan_, index), at(huge_, index), size_) == 0;
  }
  bool equals(const Pair& other, std::size_t index) const {
    return std::memcmp(at(nan_, index), at(other.nan_, index), size_) == 0;
  }
  float number(std::size_t index) const { return number_at(nan_, index); }
  float number_again(std::size_t index) const { return number_at(huge_, index); }

 private:
  const std::byte* at(const KernelOutput& output, std::size_t index) const {
    return output.bytes.data() + index * size_;
  }
  bool holds(const KernelOutput& output, std::size_t index, Poison poison) const {
    const std::byte* element = at(output, index);
    for (std::size_t i = 0; i < size_; ++i) {
      if (element[i] != std::byte{static_cast<unsigned char>(poison)}) return false;
    }
    return true;
  }

  const KernelOutput& nan_;
  const KernelOutput& huge_;
  std::size_t size_;
};

/// Over the finite elements that are written.
double root_mean_square(const Pair& values) {
  double sum = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < values.count(); ++i) {
    if (!values.is_written(i)) continue;
    const double value = values.number(i);
    if (!std::isfinite(value)) continue;
    sum += value * value;
    ++count;
  }
  return count == 0 ? 0 : std::sqrt(sum / static_cast<double>(count));
}

bool close(float have, float want, double tolerance, double rms) {
  if (std::isnan(want) || std::isnan(have)) return std::isnan(want) && std::isnan(have);
  if (std::isinf(want) || std::isinf(have)) return want == have;
  const double allowed = tolerance * (std::abs(static_cast<double>(want)) + rms);
  return std::abs(static_cast<double>(have) - static_cast<double>(want)) <= allowed;
}

std::optional<std::string> compare_output(const KernelOutput& form, const Pair& want,
                                          const Pair& have) {
  const bool by_value = is_number(form.dtype) && form.tolerance > 0;
  const double rms = by_value ? root_mean_square(want) : 0;
  for (std::size_t i = 0; i < want.count(); ++i) {
    const auto place = [&] { return fmt::format("{}[{}]", form.name, i); };
    if (want.is_written(i) != have.is_written(i)) {
      return fmt::format("{} {}", place(),
                         want.is_written(i) ? "is not written" : "is written, and must not be");
    }
    if (!want.is_written(i)) continue;
    // A run may differ from the next in rounding (sums in the order in which blocks finish).
    if (!have.runs_agree(i) && !by_value) {
      return fmt::format("{} depends on what was in the buffer before", place());
    }
    if (!by_value) {
      if (!want.equals(have, i)) return fmt::format("{} is not the reference's", place());
      continue;
    }
    for (const float value : {have.number(i), have.number_again(i)}) {
      if (close(value, want.number(i), form.tolerance, rms)) continue;
      return fmt::format("{} is {:.6g}, the reference has {:.6g} (root mean square {:.3g})",
                         place(), value, want.number(i), rms);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> disagreement(const PoisonedRuns& reference,
                                        const PoisonedRuns& candidate) {
  const std::size_t outputs = reference.nan.size();
  for (const auto* other : {&reference.huge, &candidate.nan, &candidate.huge}) {
    if (other->size() != outputs) return "it has another number of outputs than the reference";
    for (std::size_t i = 0; i < outputs; ++i) {
      if ((*other)[i].bytes.size() != reference.nan[i].bytes.size() ||
          (*other)[i].dtype != reference.nan[i].dtype) {
        return fmt::format("{} has another size or type than the reference's",
                           reference.nan[i].name);
      }
    }
  }
  for (std::size_t i = 0; i < outputs; ++i) {
    const Pair want(reference.nan[i], reference.huge[i]);
    const Pair have(candidate.nan[i], candidate.huge[i]);
    if (auto found = compare_output(reference.nan[i], want, have)) return found;
  }
  return std::nullopt;
}

}  // namespace ingot
