#include "tests/support/sampler_check.hpp"

#include <bit>
#include <cstring>
#include <limits>

#include "src/sampler/sampler.hpp"
#include "tests/support/kernel_check.hpp"

namespace ingot::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// One sequence: how it is sampled, what came before, and its logits.
struct Sequence {
  SamplingParams params;
  TokenHistory history;
  std::int64_t position = 0;
  std::vector<float> logits;
};

enum class Logits { smooth, ties, uniform, holes, nan, infinite, impossible };

std::vector<float> made_logits(Logits kind, int vocabulary, unsigned seed) {
  auto values = random_floats(static_cast<std::size_t>(vocabulary), 3.0F, seed);
  std::mt19937 random(seed);
  const auto any = [&] { return random() % values.size(); };
  switch (kind) {
    case Logits::smooth:
      break;
    case Logits::ties:
      for (float& v : values)
        v = std::round(v * 2) / 2;  // zeros of both signs among them
      break;
    case Logits::uniform:
      std::fill(values.begin(), values.end(), -1.25F);
      break;
    case Logits::holes:
      for (std::size_t i = 0; i < values.size(); i += 3)
        values[i] = -kInfinity;
      break;
    case Logits::nan:
      values[any()] = std::numeric_limits<float>::quiet_NaN();
      values.back() = std::numeric_limits<float>::quiet_NaN();
      break;
    case Logits::infinite:
      values[any()] = kInfinity;
      break;
    case Logits::impossible:
      std::fill(values.begin(), values.end(), -kInfinity);
      break;
  }
  return values;
}

std::vector<Sequence> made_sequences(int vocabulary) {
  std::vector<SamplingParams> kinds;
  const auto kind = [&](auto change) {
    SamplingParams p;
    change(p);
    kinds.push_back(p);
  };
  kind([](SamplingParams& p) { p.temperature = 0; });
  kind([](SamplingParams&) {});
  kind([](SamplingParams& p) { p.temperature = 0.3; });
  kind([](SamplingParams& p) { p.temperature = 1.9, p.top_p = 0.9; });
  kind([](SamplingParams& p) { p.top_p = 0.5, p.top_logprobs = 5; });
  kind([](SamplingParams& p) { p.top_p = 0; });
  kind([](SamplingParams& p) { p.top_k = 1; });
  kind([](SamplingParams& p) { p.top_k = 40, p.temperature = 1.3; });
  kind([](SamplingParams& p) { p.top_k = 50, p.top_p = 0.7, p.min_p = 0.02; });
  kind([=](SamplingParams& p) { p.top_k = vocabulary + 5, p.top_p = 0.99; });
  kind([](SamplingParams& p) { p.min_p = 0.1, p.top_logprobs = 0; });
  kind([](SamplingParams& p) { p.min_p = 1; });
  kind([](SamplingParams& p) { p.repetition_penalty = 1.7, p.temperature = 0.2; });
  kind([](SamplingParams& p) {
    p.repetition_penalty = 0.8, p.presence_penalty = 0.6, p.frequency_penalty = -0.3;
    p.top_p = 0.8, p.top_logprobs = 20;
  });
  kind([=](SamplingParams& p) {
    p.temperature = 0, p.frequency_penalty = 1.1;
    p.logit_bias = {{3, 4.5}, {vocabulary - 1, 100}, {3, -2.25}, {7, -100}, {3, 0.125}};
  });
  kind([=](SamplingParams& p) {
    p.logit_bias = {{vocabulary / 2, 9.5}, {vocabulary / 2, 0.5}, {0, 8}};
    p.top_p = 0.95, p.temperature = 0.7;
  });
  const Logits good[] = {Logits::smooth, Logits::ties, Logits::uniform, Logits::holes};
  std::vector<Sequence> all;
  unsigned seed = 1;
  for (const SamplingParams& params : kinds) {
    for (const Logits logits : good) {
      Sequence s{params, {}, (std::int64_t{1} << 32) * (seed % 2) + seed, {}};
      s.params.seed = 0x9e3779b97f4a7c15ULL * seed;
      s.logits = made_logits(logits, vocabulary, seed);
      for (int i = 0; i < 20; ++i)
        s.history.prompt.insert(static_cast<TokenId>((i * 37 + 11) % vocabulary));
      for (int i = 0; i < 6; ++i)
        s.history.generated[static_cast<TokenId>((i * 53 + 11) % vocabulary)] = 1 + i * 2;
      all.push_back(std::move(s));
      ++seed;
    }
  }
  for (const Logits logits : {Logits::nan, Logits::infinite, Logits::impossible}) {
    for (const std::size_t of : {std::size_t{1}, kinds.size() - 2}) {
      Sequence s{kinds[of], {}, 3, made_logits(logits, vocabulary, seed++)};
      all.push_back(std::move(s));
    }
  }
  return all;
}

/// The device's form of some sequences.
class Batch {
 public:
  Batch(KernelTarget& target, std::span<Sequence> sequences, int vocabulary,
        const kernels::SampleTokens::Params& params)
      : target_(target),
        params_(params),
        sequences_(sequences),
        stride_(static_cast<std::size_t>(vocabulary + 3) / 4 * 4),
        problem_{.vocabulary = vocabulary, .rows = static_cast<int>(sequences.size())} {
    std::vector<std::uint16_t> counts(rows() * stride_, 0);
    std::vector<float> logits(rows() * stride_, std::numeric_limits<float>::quiet_NaN());
    std::vector<int> bias_ids;
    std::vector<double> bias_values;
    for (std::size_t r = 0; r < rows(); ++r) {
      const Sequence& s = sequences_[r];
      std::copy(s.logits.begin(), s.logits.end(),
                logits.begin() + static_cast<std::ptrdiff_t>(r * stride_));
      const auto count = [&](TokenId id) -> std::uint16_t& {
        return counts[r * stride_ + static_cast<std::size_t>(id)];
      };
      for (const TokenId id : s.history.prompt)
        count(id) = static_cast<std::uint16_t>(count(id) | 0x8000);
      for (const auto& [id, times] : s.history.generated)
        count(id) = static_cast<std::uint16_t>(count(id) + times);
      bias_begin_.push_back(static_cast<int>(bias_ids.size()));
      for (const auto& [id, value] : s.params.logit_bias) {
        bias_ids.push_back(id);
        bias_values.push_back(value);
      }
    }
    args_.logits = target.place_as<const float>(logits);
    args_.bias_ids = target.place_as<const int>(bias_ids);
    args_.bias_values = target.place_as<const double>(bias_values);
    args_.counts = target.place_as<kernels::u16>(counts);
    args_.adjusted = target.place_as<float>(std::vector<float>(rows() * stride_, kPoisonFloat));
    args_.counters = target.place_as<std::uint32_t>(std::vector<std::uint32_t>(2 * rows(), 0));
    args_.exchange = target.place_as<kernels::u64>(std::vector<std::uint64_t>(
        static_cast<std::size_t>(kernels::SampleTokens::exchange_bytes(problem_, params) / 8),
        0xaaaaaaaaaaaaaaaaULL));
    args_.vocabulary = vocabulary;
    args_.stride = static_cast<int>(stride_);
  }

  /// One step; the positions are the sequences'.
  std::vector<kernels::SampleResult> run() {
    std::vector<kernels::SampleRow> device_rows;
    for (std::size_t r = 0; r < rows(); ++r) {
      const SamplingParams& p = sequences_[r].params;
      device_rows.push_back({.temperature = p.temperature,
                             .top_p = p.top_p,
                             .min_p = p.min_p,
                             .repetition_penalty = p.repetition_penalty,
                             .presence_penalty = p.presence_penalty,
                             .frequency_penalty = p.frequency_penalty,
                             .seed = p.seed,
                             .position = sequences_[r].position,
                             .top_k = p.top_k,
                             .bias_begin = bias_begin_[r],
                             .bias_count = static_cast<int>(p.logit_bias.size()),
                             .has_penalties = p.has_penalties() ? 1 : 0,
                             .logprobs = p.top_logprobs.value_or(-1),
                             .reserved = 0});
    }
    args_.rows = target_.place_as<const kernels::SampleRow>(device_rows);
    std::vector<kernels::SampleResult> poison(rows());
    std::memset(static_cast<void*>(poison.data()), 0xee, poison.size() * sizeof poison[0]);
    args_.results = target_.place_as<kernels::SampleResult>(poison);
    target_.run(variant_of<kernels::SampleTokens>(params_),
                kernels::SampleTokens::launch_shape(problem_, params_), &args_);
    return target_.fetch_as<kernels::SampleResult>(args_.results, rows());
  }
  std::vector<std::uint16_t> counts() {
    return target_.fetch_as<std::uint16_t>(args_.counts, rows() * stride_);
  }
  std::size_t stride() const { return stride_; }

 private:
  std::size_t rows() const { return sequences_.size(); }

  KernelTarget& target_;
  kernels::SampleTokens::Params params_;
  std::span<Sequence> sequences_;
  std::size_t stride_;
  kernels::SampleTokens::Problem problem_;
  std::vector<int> bias_begin_;
  kernels::SampleTokensArgs args_{};
};

void compare_logprob(const kernels::SampleLogprob& got, const TokenLogprob& wanted) {
  CAPTURE(got.id, wanted.id, got.logprob, wanted.logprob);
  REQUIRE(got.id == wanted.id);
  REQUIRE(got.logit == wanted.logit);
  REQUIRE((got.logprob == wanted.logprob ||
           std::fabs(got.logprob - wanted.logprob) <= 1e-6F * std::fabs(wanted.logprob) + 1e-7F));
}

void check_row(const kernels::SampleResult& got, const Sequence& s,
               const Result<SampledToken>& wanted) {
  if (!wanted) {
    const auto bad =
        std::count_if(s.logits.begin(), s.logits.end(), [](float v) { return !(v < kInfinity); });
    REQUIRE(got.token == -1);
    REQUIRE(got.bad_logits == (bad > 0 ? static_cast<int>(bad) : -1));
    return;
  }
  REQUIRE(got.bad_logits == 0);
  REQUIRE(got.token == wanted->id);
  if (!s.params.top_logprobs) {
    REQUIRE(got.top_count == static_cast<int>(0xeeeeeeee));
    return;
  }
  compare_logprob(got.chosen, *wanted->logprob);
  REQUIRE(got.top_count == std::ssize(wanted->top));
  for (std::size_t i = 0; i < wanted->top.size(); ++i)
    compare_logprob(got.top[i], wanted->top[i]);
}

}  // namespace

int check_sample_tokens(KernelTarget& target, const SamplerCheck& check,
                        const kernels::SampleTokens::Params& params) {
  CAPTURE(jit::describe(variant_of<kernels::SampleTokens>(params)), check.vocabulary);
  std::vector<Sequence> sequences = made_sequences(check.vocabulary);
  int place = 0;
  std::erase_if(sequences, [&](const Sequence&) { return place++ % check.every != 0; });
  const auto rows_at_once = static_cast<std::size_t>(check.rows_at_once);
  Sampler sampler;
  int compared = 0;
  for (std::size_t first = 0; first < sequences.size(); first += rows_at_once) {
    const auto batch_of =
        std::span(sequences).subspan(first, std::min(sequences.size() - first, rows_at_once));
    Batch batch(target, batch_of, check.vocabulary, params);
    Batch again(target, batch_of, check.vocabulary, params);
    for (int step = 0; step < check.steps; ++step) {
      const auto results = batch.run();
      if (step == 0) {
        const auto repeated = again.run();
        REQUIRE(std::memcmp(results.data(), repeated.data(), results.size() * sizeof results[0]) ==
                0);
      }
      for (std::size_t r = 0; r < batch_of.size(); ++r) {
        Sequence& s = batch_of[r];
        CAPTURE(first + r, step, s.params.temperature, s.params.top_p, s.params.top_k);
        const auto wanted = sampler.sample(s.logits, s.params, s.history, s.position);
        check_row(results[r], s, wanted);
        ++compared;
        if (wanted && s.params.has_penalties()) ++s.history.generated[wanted->id];
        ++s.position;
      }
    }
    const auto counts = batch.counts();
    for (std::size_t r = 0; r < batch_of.size(); ++r) {
      const Sequence& s = batch_of[r];
      for (std::size_t id = 0; id < s.logits.size(); ++id) {
        const auto token = static_cast<TokenId>(id);
        const auto generated = s.history.generated.find(token);
        const int wanted = (s.history.prompt.contains(token) ? 0x8000 : 0) +
                           (generated == s.history.generated.end() ? 0 : generated->second);
        if (counts[r * batch.stride() + id] != wanted)
          FAIL("row " << first + r << ": the count of token " << id);
      }
    }
  }
  return compared;
}

}  // namespace ingot::test
