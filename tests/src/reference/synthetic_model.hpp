#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/checkpoint.hpp"
#include "src/reference/reference_engine.hpp"
#include "tests/support/temp_dir.hpp"

namespace ingot::test {

/// A synthetic checkpoint of tests/golden/reference/NAME.json, as its golden was made from.
class SyntheticModel {
 public:
  explicit SyntheticModel(const std::string& name);
  /// One of other sizes: fields of the config and their values.
  SyntheticModel(const std::string& name, const std::map<std::string, int>& sizes);

  Checkpoint open() const;
  ReferenceEngine engine(const ReferenceOptions& options = {}) const {
    return ReferenceEngine(open(), options);
  }
  const std::filesystem::path& directory() const { return directory_.path(); }

  /// Overwrites bytes of a tensor in the model's file.
  void damage(const std::string& tensor, std::size_t offset, std::string_view bytes) const;

 private:
  TempDir directory_;
};

/// The names of the models with goldens.
inline const std::vector<std::string> kGoldenModels = {"tiny", "tiny-tp", "mix"};

/// tests/golden/reference/NAME.safetensors.zst
std::filesystem::path golden_dump(const std::string& name);

/// Made-up token ids, the same on every call.
std::vector<TokenId> some_tokens(int vocab_size, std::size_t count, std::uint64_t seed = 1);

}  // namespace ingot::test
