#include "tests/src/reference/synthetic_model.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "src/weights/open_checkpoint.hpp"
#include "src/weights/synth.hpp"

namespace ingot::test {
namespace {

/// The seeds of tools/make_reference_goldens.py.
std::uint64_t seed_of(const std::string& name) {
  return name == "mix" ? 3 : 1;
}

}  // namespace

SyntheticModel::SyntheticModel(const std::string& name) : SyntheticModel(name, {}) {}

SyntheticModel::SyntheticModel(const std::string& name, const std::map<std::string, int>& sizes) {
  SynthOptions options;
  options.config_json = golden_dir() / "reference" / (name + ".json");
  const TempDir changed;
  if (!sizes.empty()) {
    auto config = nlohmann::json::parse(std::ifstream(options.config_json));
    for (const auto& [field, value] : sizes)
      config.at(field) = value;
    options.config_json = changed.path() / "config.json";
    std::ofstream(options.config_json) << config;
  }
  options.seed = seed_of(name);
  options.out = directory_.path();
  options.threads = 2;
  value_or_throw(write_synthetic_checkpoint(options, [](std::uint64_t, std::uint64_t) {}));
}

Checkpoint SyntheticModel::open() const {
  return value_or_throw(open_checkpoint(directory_.path()));
}

void SyntheticModel::damage(const std::string& tensor, std::size_t offset,
                            std::string_view bytes) const {
  const Checkpoint checkpoint = open();
  const std::filesystem::path file = directory() / "model.safetensors";
  // The tensor's place in the file: its mapped bytes, counted from those of the last tensor, which
  // end the file.
  const auto end = checkpoint.tensors().back().bytes;
  const std::byte* file_end = end.data() + end.size();
  const auto from_end = file_end - checkpoint.tensor(tensor).bytes.data();
  std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(static_cast<std::streamoff>(std::filesystem::file_size(file)) - from_end +
            static_cast<std::streamoff>(offset));
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("damaging " + file.string());
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
