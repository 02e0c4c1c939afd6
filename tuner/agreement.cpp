#include "tuner/agreement.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace ingot {
namespace {

bool is_number(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::bf16;
}

template <class Bits>
float number_of(Bits bits) {
  if constexpr (sizeof(Bits) == 2) return std::bit_cast<float>(std::uint32_t{bits} << 16);
  if constexpr (sizeof(Bits) == 4) return std::bit_cast<float>(bits);
  return 0;  // of other sizes there are no numbers
}

/// The poison as an element.
template <class Bits>
constexpr Bits poison_of(Poison poison) {
  Bits bits = 0;
  for (std::size_t i = 0; i < sizeof(Bits); ++i)
    bits = static_cast<Bits>(bits | static_cast<std::uint64_t>(poison) << (8 * i));
  return bits;
}

/// One element of both runs of a kernel.
template <class Bits>
struct Element {
  Bits nan, huge;

  bool is_written() const {
    return nan != poison_of<Bits>(Poison::nan) || huge != poison_of<Bits>(Poison::huge);
  }
  bool runs_agree() const { return nan == huge; }
  bool operator==(const Element&) const = default;
};

/// The elements of one output in both runs.
template <class Bits>
class Pair {
 public:
  Pair(const KernelOutput& nan, const KernelOutput& huge)
      : nan_(nan.bytes.data()), huge_(huge.bytes.data()), count_(nan.bytes.size() / sizeof(Bits)) {}

  std::size_t count() const { return count_; }
  Element<Bits> at(std::size_t index) const {
    Element<Bits> element;
    std::memcpy(&element.nan, nan_ + index * sizeof(Bits), sizeof(Bits));
    std::memcpy(&element.huge, huge_ + index * sizeof(Bits), sizeof(Bits));
    return element;
  }

 private:
  const std::byte* nan_;
  const std::byte* huge_;
  std::size_t count_;
};

/// Over the finite elements that are written.
template <class Bits>
double root_mean_square(const Pair<Bits>& values) {
  double sum = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < values.count(); ++i) {
    const Element<Bits> element = values.at(i);
    if (!element.is_written()) continue;
    const double value = number_of(element.nan);
    if (!std::isfinite(value)) continue;
    sum += value * value;
    ++count;
  }
  return count == 0 ? 0 : std::sqrt(sum / static_cast<double>(count));
}

/// Euclidean distance of one of the candidate's runs from the reference, over the reference's norm;
/// elements that are not finite or not written in both are passed over.
template <class Bits>
double relative_distance(const Pair<Bits>& wanted, const Pair<Bits>& had,
                         Bits Element<Bits>::*run) {
  double distance = 0, norm = 0;
  for (std::size_t i = 0; i < wanted.count(); ++i) {
    const Element<Bits> want = wanted.at(i), have = had.at(i);
    if (!want.is_written() || !have.is_written()) continue;
    const double number = number_of(want.nan), other = number_of(have.*run);
    if (!std::isfinite(number) || !std::isfinite(other)) continue;
    norm += number * number;
    distance += (other - number) * (other - number);
  }
  return distance == 0 ? 0 : std::sqrt(distance / norm);
}

bool close(float have, float want, double tolerance, double rms) {
  if (std::isnan(want) || std::isnan(have)) return std::isnan(want) && std::isnan(have);
  if (std::isinf(want) || std::isinf(have)) return want == have;
  const double allowed = tolerance * (std::abs(static_cast<double>(want)) + rms);
  return std::abs(static_cast<double>(have) - static_cast<double>(want)) <= allowed;
}

template <class Bits>
std::optional<std::string> compare_elements(const KernelOutput& form, const Pair<Bits>& wanted,
                                            const Pair<Bits>& had) {
  const bool by_value = is_number(form.dtype) && form.tolerance > 0;
  double rms = -1;
  for (std::size_t i = 0; i < wanted.count(); ++i) {
    const Element<Bits> want = wanted.at(i), have = had.at(i);
    // Most are equal, and millions of them are looked at.
    if (want == have && want.runs_agree()) continue;
    const auto place = [&] { return fmt::format("{}[{}]", form.name, i); };
    if (want.is_written() != have.is_written()) {
      return fmt::format("{} {}", place(),
                         want.is_written() ? "is not written" : "is written, and must not be");
    }
    if (!want.is_written()) continue;
    // A run may differ from the next in rounding (sums in the order in which blocks finish).
    if (!have.runs_agree() && !by_value) {
      return fmt::format("{} depends on what was in the buffer before", place());
    }
    if (!by_value) {
      if (want.nan != have.nan) return fmt::format("{} is not the reference's", place());
      continue;
    }
    if (rms < 0) rms = root_mean_square(wanted);
    const float number = number_of(want.nan);
    for (const float value : {number_of(have.nan), number_of(have.huge)}) {
      if (close(value, number, form.tolerance, rms)) continue;
      return fmt::format("{} is {:.6g}, the reference has {:.6g} (root mean square {:.3g})",
                         place(), value, number, rms);
    }
  }
  if (!by_value || form.norm_tolerance <= 0 || rms < 0) return std::nullopt;  // rms < 0: all equal
  for (const auto run : {&Element<Bits>::nan, &Element<Bits>::huge}) {
    const double distance = relative_distance(wanted, had, run);
    if (distance <= form.norm_tolerance) continue;
    return fmt::format("{} is off by {:.3g} of its norm", form.name, distance);
  }
  return std::nullopt;
}

std::optional<std::string> compare_output(const PoisonedRuns& reference,
                                          const PoisonedRuns& candidate, std::size_t index) {
  const auto compare = [&]<class Bits>() {
    return compare_elements(reference.nan[index],
                            Pair<Bits>(reference.nan[index], reference.huge[index]),
                            Pair<Bits>(candidate.nan[index], candidate.huge[index]));
  };
  switch (dtype_bytes(reference.nan[index].dtype)) {
    case 1:
      return compare.template operator()<std::uint8_t>();
    case 2:
      return compare.template operator()<std::uint16_t>();
    case 4:
      return compare.template operator()<std::uint32_t>();
    default:
      return compare.template operator()<std::uint64_t>();
  }
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
    if (auto found = compare_output(reference, candidate, i)) return found;
  }
  return std::nullopt;
}

}  // namespace ingot
