#include "tests/tuner/fake_bench.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <limits>

namespace ingot::test {
namespace {

int tile_of(const TrialKernel& kernel) {
  return static_cast<int>(kernel.variant.params.at(0).value);
}

bool is_mma(const TrialKernel& kernel, int tile) {
  return kernel.variant.family == "mma" && tile_of(kernel) == tile;
}

}  // namespace

Trial FakeBench::enter(const TuningRequest&, const TrialKernel&) {
  before();
  ++entered;
  damaged_ = false;
  clock_.now_s += 0.01;
  return entering;
}

Trial FakeBench::end_of(const TrialKernel& kernel, bool measuring) {
  before();
  clock_.now_s += 0.01;
  const auto fate = fates.find(jit::describe(kernel.variant));
  if (fate == fates.end() || fate->second.while_measuring != measuring) return {};
  if (measuring && ++samples_[fate->first] < 3) return {};
  return {.end = fate->second.end, .reason = "as made up"};
}

Trial FakeBench::verify(const TrialKernel& kernel) {
  ++verified;
  if (damaged_) return {.end = Trial::End::wrong, .reason = "its inputs are gone"};
  return end_of(kernel, false);
}

Trial FakeBench::measure(const TrialKernel& kernel) {
  ++measured;
  damaged_ = damaged_ || jit::describe(kernel.variant) == vandal;
  Trial trial = end_of(kernel, true);
  if (!trial.is_good()) return trial;
  const auto time = time_us.find(jit::describe(kernel.variant));
  std::uniform_real_distribution<double> shaken(1 - noise, 1 + noise);
  trial.time_us = (time == time_us.end() ? 100 : time->second) * shaken(random_);
  return trial;
}

Result<std::vector<std::string>> FakeRunner::enter(const std::vector<std::string>& families,
                                                   const std::vector<ProblemField>& problem) {
  if (families.empty() || problem.empty() || problem[0].value > 1000) {
    return fail(ErrorCode::unsupported, "no inputs for this problem");
  }
  return std::vector<std::string>{"largest", "empty row"};
}

Result<std::vector<KernelOutput>> FakeRunner::run(const TrialKernel& kernel, std::size_t edge_case,
                                                  Poison poison) {
  while (is_mma(kernel, 32))
    ::pause();
  if (is_mma(kernel, 8)) return fail(ErrorCode::cuda, "too many resources requested for launch");
  if (is_mma(kernel, 4)) {
    throw EngineError(ErrorCode::cuda, "cuStreamSynchronize: an illegal memory access");
  }
  if (is_mma(kernel, 256)) ::raise(SIGKILL);
  KernelOutput lse{.name = "lse", .dtype = Dtype::f32, .tolerance = 0.01, .bytes = {}};
  std::vector<float> values{1, 2, 3, 4};
  if (edge_case == 1) values[2] = -std::numeric_limits<float>::infinity();
  if (kernel.variant.family == "simt") values[0] *= 1.001f;
  lse.bytes.resize(values.size() * sizeof(float));
  std::memcpy(lse.bytes.data(), values.data(), lse.bytes.size());
  if (is_mma(kernel, 16) && edge_case == 1) {
    std::memset(lse.bytes.data() + 8, static_cast<int>(poison), 4);
  }
  return std::vector{lse};
}

Result<double> FakeRunner::time_us(const TrialKernel& kernel) {
  if (is_mma(kernel, 128)) {
    std::fputs("free(): invalid pointer\n", stderr);
    (void)::signal(SIGSEGV, SIG_DFL);  // not a sanitizer's handler
    ::raise(SIGSEGV);
  }
  if (kernel.variant.family == "mma") return is_mma(kernel, 16) ? 1.0 : is_mma(kernel, 32) ? 2 : 10;
  return 6.0 + tile_of(kernel);
}

}  // namespace ingot::test
