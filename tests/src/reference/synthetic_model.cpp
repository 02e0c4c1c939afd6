#include "tests/src/reference/synthetic_model.hpp"

#include "src/weights/open_checkpoint.hpp"
#include "src/weights/synth.hpp"

namespace ingot::test {
namespace {

/// The seeds of tools/make_reference_goldens.py.
std::uint64_t seed_of(const std::string& name) {
  return name == "mix" ? 3 : 1;
}

}  // namespace

SyntheticModel::SyntheticModel(const std::string& name) {
  SynthOptions options;
  options.config_json = golden_dir() / "reference" / (name + ".json");
  options.seed = seed_of(name);
  options.out = directory_.path();
  options.threads = 2;
  value_or_throw(write_synthetic_checkpoint(options, [](std::uint64_t, std::uint64_t) {}));
}

Checkpoint SyntheticModel::open() const {
  return value_or_throw(open_checkpoint(directory_.path()));
}

std::filesystem::path golden_dump(const std::string& name) {
  return golden_dir() / "reference" / (name + ".safetensors.zst");
}

std::vector<TokenId> some_tokens(int vocab_size, std::size_t count, std::uint64_t seed) {
  std::vector<TokenId> tokens;
  std::uint64_t state = seed;
  while (tokens.size() < count) {  // Knuth's MMIX generator: any fixed sequence does
    state = state * 6364136223846793005U + 1442695040888963407U;
    tokens.push_back(static_cast<TokenId>((state >> 33) % static_cast<std::uint64_t>(vocab_size)));
  }
  return tokens;
}

}  // namespace ingot::test
