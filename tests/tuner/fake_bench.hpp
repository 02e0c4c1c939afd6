#pragma once

#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tuner/trial.hpp"

namespace ingot::test {

/// A clock that moves when it is told to.
struct FakeClock {
  double now_s = 0;
  std::function<double()> reader() {
    return [this] { return now_s; };
  }
};

/// A stopwatch with made-up times, in this process. Every call takes 0.01 s of the clock.
class FakeBench : public Bench {
 public:
  explicit FakeBench(FakeClock& clock) : clock_(clock) {}

  /// By jit::describe of the variant; others take 100 us.
  std::map<std::string, double> time_us;
  /// How the verification or, where `while_measuring`, the third sample of a variant ends.
  struct Fate {
    Trial::End end = Trial::End::wrong;
    bool while_measuring = false;
  };
  std::map<std::string, Fate> fates;
  std::string vandal;  ///< a variant that, once measured, makes all others wrong until enter()
  double noise = 0;    ///< share, uniformly in both directions
  Trial entering;      ///< what enter() returns
  std::function<void()> before = [] {};  ///< of every call

  void reseed(unsigned seed) { random_.seed(seed); }

  Trial enter(const TuningRequest& request, const TrialKernel& reference) override;
  Trial verify(const TrialKernel& kernel) override;
  Trial measure(const TrialKernel& kernel) override;

  int entered = 0;
  int verified = 0;
  int measured = 0;

 private:
  Trial end_of(const TrialKernel& kernel, bool measuring);

  FakeClock& clock_;
  std::mt19937 random_{1};
  std::map<std::string, int> samples_;
  bool damaged_ = false;
};

/// A card that computes in its head. Its candidates misbehave by TILE of the family "mma":
///   16 is the fastest and wrong where a row is empty, 32 hangs, 128 ends the process by SIGSEGV,
///   8 is refused by the card, 4 loses the card's context; 256 is killed from outside.
class FakeRunner : public TrialRunner {
 public:
  [[nodiscard]] Result<std::vector<std::string>> enter(
      const std::vector<std::string>& families, const std::vector<ProblemField>& problem) override;
  [[nodiscard]] Result<std::vector<KernelOutput>> run(const TrialKernel& kernel,
                                                      std::size_t edge_case,
                                                      Poison poison) override;
  [[nodiscard]] Result<double> time_us(const TrialKernel& kernel) override;
};

}  // namespace ingot::test
