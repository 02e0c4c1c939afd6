#include "tests/support/real_tokenizer.hpp"

#include "tests/support/temp_dir.hpp"

namespace ingot::test {

const Tokenizer& real_tokenizer() {
  static const Tokenizer tokenizer =
      value_or_throw(Tokenizer::load(golden_dir() / "../../configs/deepseek-v4-flash"));
  return tokenizer;
}

}  // namespace ingot::test
