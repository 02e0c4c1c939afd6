#include "tuner/trial_worker.hpp"

#include <bit>
#include <cstdint>

#include "runtime/base/byte_stream.hpp"
#include "tuner/child_process.hpp"

namespace ingot {
namespace {

void put_kernel(ByteWriter& out, const TrialKernel& kernel) {
  out.text(kernel.variant.family);
  out.u64(kernel.variant.params.size());
  for (const jit::ParamValue& param : kernel.variant.params) {
    out.text(param.type);
    out.text(param.name);
    out.u64(static_cast<std::uint64_t>(param.value));
  }
  out.text({reinterpret_cast<const char*>(kernel.cubin.data()), kernel.cubin.size()});
}

TrialKernel take_kernel(ByteReader& in) {
  TrialKernel kernel;
  kernel.variant.family = in.text();
  for (std::uint64_t left = in.u64(); left > 0 && in.ok(); --left) {
    jit::ParamValue param;
    param.type = in.text();
    param.name = in.text();
    param.value = static_cast<std::int64_t>(in.u64());
    kernel.variant.params.push_back(std::move(param));
  }
  const std::string_view cubin = in.text();
  const auto* begin = reinterpret_cast<const std::byte*>(cubin.data());
  kernel.cubin.assign(begin, begin + cubin.size());
  return kernel;
}

/// What a runner's error says of the candidate that it was running.
Trial refused(const Error& error) {
  return {.end = Trial::End::refused, .reason = error.message};
}

Trial answer(const TrialJob& job, TrialRunner& runner, Verifier& verifier) {
  switch (job.what) {
    case TrialJob::What::enter: {
      auto edge_cases = runner.enter(job.families, job.problem);
      if (!edge_cases) return refused(edge_cases.error());
      const auto set = verifier.set_reference(job.kernel, std::move(*edge_cases));
      if (set) return {};
      if (set.error().code != ErrorCode::corrupt) return refused(set.error());
      return {.end = Trial::End::wrong, .reason = set.error().message};
    }
    case TrialJob::What::verify: {
      const auto found = verifier.check(job.kernel);
      if (!found) return refused(found.error());
      if (!*found) return {};
      return {.end = Trial::End::wrong, .reason = **found};
    }
    case TrialJob::What::measure: {
      const auto time_us = runner.time_us(job.kernel);
      if (!time_us) return refused(time_us.error());
      return {.reason = {}, .time_us = *time_us};
    }
  }
  return {.end = Trial::End::refused, .reason = "an unknown job"};
}

}  // namespace

std::string encode_trial_job(const TrialJob& job) {
  ByteWriter out;
  out.u64(static_cast<std::uint64_t>(job.what));
  out.u64(job.families.size());
  for (const std::string& family : job.families)
    out.text(family);
  out.u64(job.problem.size());
  for (const ProblemField& field : job.problem) {
    out.text(field.name);
    out.u64(static_cast<std::uint64_t>(field.value));
  }
  put_kernel(out, job.kernel);
  return out.take();
}

Result<TrialJob> decode_trial_job(const std::string& frame) {
  ByteReader in(frame);
  TrialJob job;
  const std::uint64_t what = in.u64();
  job.what = static_cast<TrialJob::What>(what);
  for (std::uint64_t left = in.u64(); left > 0 && in.ok(); --left)
    job.families.emplace_back(in.text());
  for (std::uint64_t left = in.u64(); left > 0 && in.ok(); --left) {
    std::string name(in.text());
    job.problem.push_back({std::move(name), static_cast<std::int64_t>(in.u64())});
  }
  job.kernel = take_kernel(in);
  if (!in.done() || what > static_cast<std::uint64_t>(TrialJob::What::measure)) {
    return fail(ErrorCode::corrupt, "a trial job's frame is malformed");
  }
  return job;
}

std::string encode_trial(const Trial& trial) {
  ByteWriter out;
  out.u64(static_cast<std::uint64_t>(trial.end));
  out.text(trial.reason);
  out.u64(std::bit_cast<std::uint64_t>(trial.time_us));
  return out.take();
}

Result<Trial> decode_trial(const std::string& frame) {
  ByteReader in(frame);
  Trial trial;
  const std::uint64_t end = in.u64();
  trial.end = static_cast<Trial::End>(end);
  trial.reason = in.text();
  trial.time_us = std::bit_cast<double>(in.u64());
  if (!in.done() || end > static_cast<std::uint64_t>(Trial::End::lost)) {
    return fail(ErrorCode::corrupt, "a trial's answer is malformed");
  }
  return trial;
}

int serve_trials(int channel, TrialRunner& runner) {
  Verifier verifier(runner);
  return answer_questions(channel, [&](const std::string& question) {
    return encode_trial(answer(value_or_throw(decode_trial_job(question)), runner, verifier));
  });
}

}  // namespace ingot
