#pragma once

#include "src/text/tokenizer.hpp"

namespace ingot::test {

/// The tokenizer of DeepSeek-V4 (configs/deepseek-v4-flash), loaded once for a test program.
const Tokenizer& real_tokenizer();

}  // namespace ingot::test
