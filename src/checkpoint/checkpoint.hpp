#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.hpp"
#include "runtime/base/error.hpp"
#include "src/checkpoint/model_config.hpp"

namespace ingot {

/// One tensor as it lies in a mapped file. Never owns; valid as long as its Checkpoint.
struct TensorView {
  std::string_view name;
  Dtype dtype{};
  std::vector<std::int64_t> shape;   ///< stored shape (FP4 experts: the packed I8 shape)
  std::span<const std::byte> bytes;  ///< row-major, little-endian
};

/// A checkpoint folder: `config.json` and one or many safetensors shards, mapped read-only.
/// Opening checks files, headers, offsets, dtypes, shapes and completeness against the config
/// before anything large is touched; it reads headers only. Any thread may call const members.
/// Not its job: what a tensor means or how it is split (src/weights/tensor_table).
class Checkpoint {
 public:
  /// @param directory holds config.json, *.safetensors and, with several shards, optionally
  ///                  model.safetensors.index.json.
  /// Error: all problems at once in one message, a line each; codes not_found, corrupt,
  /// unsupported.
  [[nodiscard]] static Result<Checkpoint> open(const std::filesystem::path& directory);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const ModelConfig& config() const;
  const std::filesystem::path& directory() const;

  /// The tensor, or nullptr.
  const TensorView* find(std::string_view name) const;
  /// The tensor; throws EngineError(not_found). After open() every tensor that the config implies
  /// is there, so a miss is a broken invariant.
  const TensorView& tensor(std::string_view name) const;
  /// All tensors in file order, those of an ignored draft module included.
  std::span<const TensorView> tensors() const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ingot
