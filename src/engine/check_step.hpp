#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/function_ref.hpp"
#include "src/engine/engine.hpp"

namespace ingot {

/// What every engine refuses of the tokens of one sequence: none at all, and one outside the
/// vocabulary. Throws EngineError(invalid_argument).
void check_tokens(SequenceId sequence, std::span<const TokenId> tokens, int vocab_size);

/// What every engine refuses of a step, before any state changes: a sequence twice, tokens that
/// check_tokens refuses, an offer to sample without LogitsOf::last, a context overflow. Throws
/// EngineError(invalid_argument).
/// @param length  tokens that a sequence holds; throws for one that there is not
/// @param ids     scratch, which a caller may keep for its memory
void check_step(std::span<const SequenceStep> batch, int vocab_size, std::int64_t max_context,
                FunctionRef<std::int64_t(SequenceId)> length, std::vector<SequenceId>& ids);

}  // namespace ingot
