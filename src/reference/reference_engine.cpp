#include "src/reference/reference_engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <thread>
#include <unordered_map>
#include <utility>

#include "src/checkpoint/problems.hpp"
#include "src/engine/check_step.hpp"
#include "src/reference/lanes.hpp"
#include "src/reference/model_rank.hpp"
#include "src/weights/open_checkpoint.hpp"
#include "src/weights/tensor_table.hpp"

namespace ingot {
namespace {

using reference::ModelRank;
using reference::SequenceRows;
using reference::SequenceState;
using reference::TpGroup;

/// Rows that the layers take at once. It bounds the workspace of a long prompt; enough to reuse a
/// dequantised weight many times. Results do not depend on it.
constexpr std::int64_t kPassRows = 256;

constexpr int kMaxThreads = 1024;

/// What snapshot_bytes() begins with; another layout of the state is another version.
constexpr std::string_view kStateFormat = "ingot reference state 1";

[[noreturn]] void refuse(std::string message) {
  throw EngineError(ErrorCode::invalid_argument, std::move(message));
}

std::uint64_t number(SequenceId sequence) {
  return static_cast<std::uint64_t>(sequence);
}

int thread_count(const ReferenceOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    refuse(
        fmt::format("starting the reference engine: {} threads asked for, 0 (one per CPU) to {} "
                    "are possible",
                    options.threads, kMaxThreads));
  }
  if (options.threads > 0) return options.threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// options.tp_size, when all options fit the model.
int checked_tp_size(const ModelConfig& config, const ReferenceOptions& options) {
  value_or_throw(check_tp_size(config, options.tp_size));
  if (options.max_context < 0 || options.max_context > config.max_position_embeddings) {
    refuse(
        fmt::format("starting the reference engine: a context of {} tokens asked for, the model "
                    "has 1 to {}",
                    options.max_context, config.max_position_embeddings));
  }
  if (options.max_rollback < 0) {
    refuse(fmt::format("starting the reference engine: max_rollback is {}, not 0 or more",
                       options.max_rollback));
  }
  if (config.head_dim % reference::kLanes != 0 || config.index_head_dim % reference::kLanes != 0) {
    throw EngineError(
        ErrorCode::unsupported,
        fmt::format("starting the reference engine: head_dim {} and index_head_dim {} must be "
                    "multiples of {}",
                    config.head_dim, config.index_head_dim, reference::kLanes));
  }
  return options.tp_size;
}

/// Rows of a step whose logits are wanted.
std::int64_t wanted_rows(LogitsOf logits, std::size_t tokens) {
  switch (logits) {
    case LogitsOf::none:
      return 0;
    case LogitsOf::last:
      return 1;
    case LogitsOf::all:
      return static_cast<std::int64_t>(tokens);
  }
  return 0;
}

}  // namespace

struct ReferenceEngine::Impl {
  Impl(Checkpoint opened, const ReferenceOptions& options)
      : checkpoint(std::move(opened)), group(checked_tp_size(config(), options)) {
    const int threads = thread_count(options);
    Problems problems;
    check_all_values(checkpoint, ValueChecks::loading, threads, problems);
    if (!problems.empty()) throw EngineError(problems.to_error("loading the model"));
    max_context = options.max_context > 0 ? options.max_context : config().max_position_embeddings;
    max_rollback = options.max_rollback;
    for (int tp_rank = 0; tp_rank < options.tp_size; ++tp_rank) {
      ranks.emplace_back(checkpoint, group, tp_rank, std::max(1, threads / options.tp_size));
    }
  }

  const ModelConfig& config() const { return checkpoint.config(); }

  std::vector<SequenceState>& states(SequenceId sequence, const char* attempt) {
    const auto found = sequences.find(number(sequence));
    if (found == sequences.end()) {
      refuse(fmt::format("{}: there is no sequence {}", attempt, number(sequence)));
    }
    return found->second;
  }

  SequenceId add(std::vector<SequenceState> states) {
    sequences.emplace(++last_id, std::move(states));
    return SequenceId{last_id};
  }

  StepLogits empty_logits(std::int64_t rows) const {
    const auto width = static_cast<std::size_t>(config().vocab_size);
    return {static_cast<int>(rows), std::vector<float>(static_cast<std::size_t>(rows) * width)};
  }

  /// Cuts a sequence's tokens into the passes, each of at most kPassRows rows and with at most one
  /// part of a sequence.
  void plan(const SequenceStep& step, StepLogits& result,
            std::vector<std::vector<SequenceRows>>& passes, std::int64_t& last_pass_rows) {
    const auto tokens = static_cast<std::int64_t>(step.tokens.size());
    const auto vocab = static_cast<std::int64_t>(config().vocab_size);
    for (std::int64_t begin = 0; begin < tokens;) {
      if (passes.empty() || begin > 0 || last_pass_rows == kPassRows) {
        passes.emplace_back();
        last_pass_rows = 0;
      }
      const std::int64_t count = std::min(tokens - begin, kPassRows - last_pass_rows);
      // Wanted are the last result.rows of the tokens: which of them are in this part?
      const std::int64_t first_wanted = std::max(begin, tokens - result.rows);
      const std::int64_t wanted = std::max<std::int64_t>(0, begin + count - first_wanted);
      const std::int64_t first_row = first_wanted - (tokens - result.rows);
      passes.back().push_back(
          {states(step.sequence, "running a step"),
           step.tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
           wanted == 0 ? std::span<float>()
                       : std::span(result.values)
                             .subspan(static_cast<std::size_t>(first_row * vocab),
                                      static_cast<std::size_t>(wanted * vocab))});
      begin += count;
      last_pass_rows += count;
    }
  }

  void count_nan_rows(const StepLogits& logits) {
    for (int r = 0; r < logits.rows; ++r)
      nan_rows += std::ranges::any_of(logits.row(r), [](float v) { return v != v; }) ? 1 : 0;
  }

  Checkpoint checkpoint;
  TpGroup group;
  std::deque<ModelRank> ranks;
  std::int64_t max_context = 0;
  std::int64_t max_rollback = 0;
  std::unordered_map<std::uint64_t, std::vector<SequenceState>> sequences;
  std::uint64_t last_id = 0;
  std::int64_t nan_rows = 0;
};

ReferenceEngine::ReferenceEngine(Checkpoint checkpoint, const ReferenceOptions& options)
    : impl_(std::make_unique<Impl>(std::move(checkpoint), options)) {}

ReferenceEngine::~ReferenceEngine() = default;

const ModelConfig& ReferenceEngine::config() const {
  return impl_->config();
}

std::int64_t ReferenceEngine::max_context() const {
  return impl_->max_context;
}

std::int64_t ReferenceEngine::max_rollback() const {
  return impl_->max_rollback;
}

SequenceId ReferenceEngine::create_sequence() {
  std::vector<SequenceState> states;
  for (const ModelRank& rank : impl_->ranks) {
    states.emplace_back(impl_->config(), rank.weights(), impl_->max_rollback);
  }
  return impl_->add(std::move(states));
}

SequenceId ReferenceEngine::fork(SequenceId sequence) {
  return impl_->add(impl_->states(sequence, "forking a sequence"));
}

void ReferenceEngine::release(SequenceId sequence) {
  impl_->states(sequence, "releasing a sequence");
  impl_->sequences.erase(number(sequence));
}

std::int64_t ReferenceEngine::length(SequenceId sequence) const {
  return impl_->states(sequence, "asking for a length")[0].length();
}

std::int64_t ReferenceEngine::mtp_length(SequenceId sequence) const {
  return impl_->states(sequence, "asking for a length")[0].mtp_length();
}

std::int64_t ReferenceEngine::nan_rows() const {
  return impl_->nan_rows;
}

const SequenceState& ReferenceEngine::state(SequenceId sequence, int tp_rank) const {
  return impl_->states(sequence, "asking for a state").at(static_cast<std::size_t>(tp_rank));
}

void ReferenceEngine::rollback(SequenceId sequence, std::int64_t length) {
  std::vector<SequenceState>& states = impl_->states(sequence, "rolling back");
  const SequenceState& state = states[0];
  if (length < 0 || length > state.length()) {
    refuse(fmt::format("rolling back sequence {} to {} tokens: it has {}", number(sequence), length,
                       state.length()));
  }
  if (length < state.rollback_floor()) {
    refuse(
        fmt::format("rolling back sequence {} to {} tokens: it can go back to {} at most, {} "
                    "tokens before the longest it has been; fork it earlier",
                    number(sequence), length, state.rollback_floor(), impl_->max_rollback));
  }
  for (SequenceState& rank_state : states)
    rank_state.rollback(length);
}

Result<std::string> ReferenceEngine::snapshot_bytes(SequenceId sequence) const {
  const std::vector<SequenceState>& states = impl_->states(sequence, "saving a sequence");
  ByteWriter out;
  out.text(kStateFormat);
  out.u64(states.size());
  for (const SequenceState& state : states)
    state.write(out);
  return out.take();
}

Result<SequenceId> ReferenceEngine::restore(std::string_view bytes) {
  ByteReader in(bytes);
  if (in.text() != kStateFormat) {
    return fail(ErrorCode::unsupported,
                "restoring a sequence: its state is of another kind or version of engine");
  }
  if (const std::uint64_t tp_size = in.u64(); tp_size != impl_->ranks.size()) {
    return fail(ErrorCode::unsupported,
                fmt::format("restoring a sequence: its state is of TP size {}, this is {}", tp_size,
                            impl_->ranks.size()));
  }
  std::vector<SequenceState> states;
  for (const ModelRank& rank : impl_->ranks) {
    states.emplace_back(impl_->config(), rank.weights(), impl_->max_rollback);
    if (!states.back().read(in) || states.back().length() != states.front().length()) {
      return fail(ErrorCode::corrupt, "restoring a sequence: its state contradicts itself");
    }
  }
  if (!in.done()) return fail(ErrorCode::corrupt, "restoring a sequence: bytes are left over");
  if (states.front().length() > impl_->max_context) {
    return fail(ErrorCode::unsupported,
                fmt::format("restoring a sequence of {} tokens: the context holds {}",
                            states.front().length(), impl_->max_context));
  }
  return impl_->add(std::move(states));
}

std::vector<StepLogits> ReferenceEngine::step(std::span<const SequenceStep> batch) {
  std::vector<SequenceId> ids;
  const auto length = [&](SequenceId sequence) {
    return impl_->states(sequence, "running a step")[0].length();
  };
  check_step(batch, config().vocab_size, max_context(), length, ids);
  std::vector<StepLogits> results;
  for (const SequenceStep& step : batch) {
    results.push_back(impl_->empty_logits(wanted_rows(step.logits, step.tokens.size())));
  }
  std::vector<std::vector<SequenceRows>> passes;
  std::int64_t last_pass_rows = 0;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    impl_->plan(batch[i], results[i], passes, last_pass_rows);
  }
  impl_->group.run([&](int tp_rank) {
    const auto rank = static_cast<std::size_t>(tp_rank);
    for (const SequenceStep& step : batch) {
      impl_->sequences.at(number(step.sequence))[rank].begin_step();
    }
    for (const std::vector<SequenceRows>& pass : passes)
      impl_->ranks[rank].forward(pass);
  });
  for (std::size_t i = 0; i < batch.size(); ++i) {
    impl_->count_nan_rows(results[i]);
  }
  return results;
}

StepLogits ReferenceEngine::mtp_step(SequenceId sequence, std::span<const TokenId> next_tokens,
                                     LogitsOf logits) {
  std::vector<SequenceState>& states = impl_->states(sequence, "running the MTP block");
  const SequenceState& state = states[0];
  if (impl_->config().num_mtp_layers == 0) refuse("running the MTP block: the model has none");
  check_tokens(sequence, next_tokens, config().vocab_size);
  const auto tokens = static_cast<std::int64_t>(next_tokens.size());
  if (tokens > state.length() - state.mtp_length()) {
    refuse(
        fmt::format("running the MTP block on sequence {}: {} tokens given, {} positions are "
                    "new to it",
                    number(sequence), tokens, state.length() - state.mtp_length()));
  }
  if (state.mtp_length() < state.streams.first()) {
    refuse(
        fmt::format("running the MTP block on sequence {}: the hidden state of position {} is "
                    "gone; call it after each step",
                    number(sequence), state.mtp_length()));
  }
  StepLogits result = impl_->empty_logits(wanted_rows(logits, next_tokens.size()));
  const SequenceStep step{sequence, next_tokens, logits};
  std::vector<std::vector<SequenceRows>> passes;
  std::int64_t last_pass_rows = 0;
  impl_->plan(step, result, passes, last_pass_rows);
  impl_->group.run([&](int tp_rank) {
    for (const std::vector<SequenceRows>& pass : passes) {
      impl_->ranks[static_cast<std::size_t>(tp_rank)].mtp_forward(pass.front());
    }
  });
  impl_->count_nan_rows(result);
  return result;
}

std::unique_ptr<Engine> make_reference_engine(Checkpoint checkpoint,
                                              const ReferenceOptions& options) {
  return std::make_unique<ReferenceEngine>(std::move(checkpoint), options);
}

}  // namespace ingot
