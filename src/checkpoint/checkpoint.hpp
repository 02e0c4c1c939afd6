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
#include "src/checkpoint/problems.hpp"

namespace ingot {

/// One tensor as it lies in a mapped file. Never owns; valid as long as its Checkpoint.
struct TensorView {
  std::string_view name;
  Dtype dtype{};
  std::vector<std::int64_t> shape;   ///< stored shape (FP4 experts: the packed I8 shape)
  std::span<const std::byte> bytes;  ///< row-major, little-endian
  std::size_t shard = 0;             ///< index into Checkpoint::shards()
};

/// One safetensors file of a checkpoint.
struct Shard {
  std::filesystem::path path;
  std::size_t file_bytes = 0;
  std::size_t tensors = 0;
};

/// A checkpoint folder: `config.json` and one or many safetensors shards, mapped read-only.
/// Opening checks files, headers, offsets, dtypes and the index, before anything large is touched;
/// it reads headers only. Any thread may call const members.
/// Not its job: what a tensor means, which tensors a config implies and how they are split
/// (src/weights). To run a model, open it with open_checkpoint() of src/weights, which also checks
/// completeness.
class Checkpoint {
 public:
  /// @param directory holds config.json, *.safetensors and, with several shards, optionally
  ///                  model.safetensors.index.json.
  /// Error: all problems at once in one message, a line each; codes not_found, corrupt,
  /// unsupported, invalid_argument, io.
  [[nodiscard]] static Result<Checkpoint> open(const std::filesystem::path& directory);

  /// The same, but goes on as far as it can: what is wrong is added to `problems`, and the result
  /// holds what could be read (config() only if has_config(), tensors of sound shards only). For
  /// reports.
  static Checkpoint survey(const std::filesystem::path& directory, Problems& problems);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  /// False only after a survey() that found config.json missing or bad.
  bool has_config() const;
  const ModelConfig& config() const;
  const std::filesystem::path& directory() const;
  std::span<const Shard> shards() const;

  /// The tensor, or nullptr.
  const TensorView* find(std::string_view name) const;
  /// The tensor; throws EngineError(not_found). After open_checkpoint() every tensor that the
  /// config implies is there, so a miss is a broken invariant.
  const TensorView& tensor(std::string_view name) const;
  /// All tensors, shard by shard in file order, those of an ignored draft module included.
  std::span<const TensorView> tensors() const;

  /// After a survey(): whether a tensor that find() does not know may be in a shard that is missing
  /// or could not be read, so that its absence needs no words of its own.
  bool may_be_unread(std::string_view name) const;

  /// Asks the kernel to read a tensor ahead of its use.
  void will_need(const TensorView& tensor) const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ingot
