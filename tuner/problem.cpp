#include "tuner/problem.hpp"

namespace ingot {

std::string describe(std::span<const ProblemField> problem) {
  std::string text;
  for (const ProblemField& field : problem) {
    text += (text.empty() ? "" : " ") + field.name + "=" + std::to_string(field.value);
  }
  return text;
}

}  // namespace ingot
