#include "src/checkpoint/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "runtime/base/mapped_file.hpp"
#include "src/checkpoint/safetensors.hpp"
#include "src/checkpoint/shard_list.hpp"

namespace ingot {

namespace fs = std::filesystem;

struct Checkpoint::Impl {
  struct OpenShard {
    MappedFile file;
    SafetensorsHeader header;  // owns the names that tensors point to
  };

  fs::path directory;
  std::optional<ModelConfig> config;
  std::vector<OpenShard> open_shards;
  std::vector<Shard> shards;
  std::vector<TensorView> tensors;
  std::unordered_map<std::string_view, std::size_t> by_name;  // → place in tensors
  std::optional<ShardIndex> index;
  bool has_unread_shards = false;

  void open_shard(const fs::path& path, Problems& problems);
  void list_tensors(Problems& problems);
  void check_index(Problems& problems) const;
};

void Checkpoint::Impl::open_shard(const fs::path& path, Problems& problems) {
  auto file = MappedFile::open(path);
  if (!file) {
    problems.add(file.error());
    return;
  }
  auto header =
      read_safetensors_header(file->bytes(), path.string(), problems,
                              [&](std::span<const std::byte> part) { file->not_needed(part); });
  if (!header) return;
  shards.push_back({path, file->bytes().size(), header->entries.size()});
  open_shards.push_back({std::move(*file), std::move(*header)});
}

void Checkpoint::Impl::list_tensors(Problems& problems) {
  std::size_t count = 0;
  for (const OpenShard& shard : open_shards)
    count += shard.header.entries.size();
  tensors.reserve(count);
  by_name.reserve(count);
  for (std::size_t i = 0; i < open_shards.size(); ++i) {
    const auto data = open_shards[i].file.bytes().subspan(open_shards[i].header.data_start);
    for (const SafetensorsEntry& entry : open_shards[i].header.entries) {
      const auto [known, is_new] = by_name.emplace(entry.name, tensors.size());
      if (!is_new) {
        problems.add(
            ErrorCode::corrupt,
            fmt::format("tensor {} is in two shards, {} and {}; remove the one that does "
                        "not belong to this checkpoint",
                        in_quotes(entry.name), shards[tensors[known->second].shard].path.string(),
                        shards[i].path.string()));
        continue;
      }
      tensors.push_back({entry.name, entry.dtype, entry.shape,
                         data.subspan(entry.begin, entry.end - entry.begin), i});
    }
  }
}

/// That index and shards name the same tensors; for when every shard was read.
void Checkpoint::Impl::check_index(Problems& problems) const {
  for (const auto& [name, shard] : index->shard_of) {
    const auto found = by_name.find(name);
    if (found == by_name.end()) {
      problems.add(ErrorCode::not_found,
                   fmt::format("tensor {} is not in {}, where the index puts it; fetch that shard "
                               "again",
                               in_quotes(name), (directory / shard).string()));
    } else if (const fs::path& actual = shards[tensors[found->second].shard].path;
               actual.filename() != shard) {
      problems.add(ErrorCode::corrupt,
                   fmt::format("tensor {} is in {}, but the index puts it in {}; fetch the index "
                               "again",
                               in_quotes(name), actual.string(), shard));
    }
  }
  for (const TensorView& tensor : tensors) {
    if (index->shard_of.contains(tensor.name)) continue;
    problems.add(ErrorCode::corrupt,
                 fmt::format("tensor {} of {} is not in the index; fetch the index again",
                             in_quotes(tensor.name), shards[tensor.shard].path.string()));
  }
}

Checkpoint Checkpoint::survey(const fs::path& directory, Problems& problems) {
  auto impl = std::make_unique<Impl>();
  impl->directory = directory;
  std::error_code error;
  const fs::file_status status = fs::status(directory, error);
  if (!fs::is_directory(status)) {
    if (fs::exists(status)) {
      problems.add(ErrorCode::invalid_argument,
                   fmt::format("{} is a file; give the folder that holds config.json and the "
                               "*.safetensors files",
                               directory.string()));
    } else {
      problems.add(
          ErrorCode::not_found,
          fmt::format("{} does not exist; give the folder of a checkpoint", directory.string()));
    }
    return Checkpoint(std::move(impl));
  }
  if (auto config = read_model_config(directory / "config.json")) {
    impl->config = std::move(*config);
  } else {
    problems.add(config.error());
    // Another architecture: its tensors would be judged by the wrong rules.
    if (config.error().code == ErrorCode::unsupported) return Checkpoint(std::move(impl));
  }
  const std::size_t problems_before = problems.size();
  ShardList list = list_shards(directory, problems);
  for (const fs::path& path : list.files)
    impl->open_shard(path, problems);
  impl->has_unread_shards = problems.size() != problems_before;
  impl->index = std::move(list.index);
  impl->list_tensors(problems);
  if (impl->index && !impl->has_unread_shards) impl->check_index(problems);
  return Checkpoint(std::move(impl));
}

Result<Checkpoint> Checkpoint::open(const fs::path& directory) {
  Problems problems;
  Checkpoint checkpoint = survey(directory, problems);
  if (!problems.empty()) {
    return tl::unexpected(
        problems.to_error(fmt::format("opening the checkpoint {}", directory.string())));
  }
  return checkpoint;
}

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

bool Checkpoint::has_config() const {
  return impl_->config.has_value();
}
const ModelConfig& Checkpoint::config() const {
  return impl_->config.value();
}
const fs::path& Checkpoint::directory() const {
  return impl_->directory;
}
std::span<const Shard> Checkpoint::shards() const {
  return impl_->shards;
}
std::span<const TensorView> Checkpoint::tensors() const {
  return impl_->tensors;
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto found = impl_->by_name.find(name);
  return found == impl_->by_name.end() ? nullptr : &impl_->tensors[found->second];
}

bool Checkpoint::may_be_unread(std::string_view name) const {
  if (!impl_->has_unread_shards) return false;
  if (!impl_->index) return true;
  const auto indexed = impl_->index->shard_of.find(name);
  if (indexed == impl_->index->shard_of.end()) return false;
  return std::none_of(impl_->shards.begin(), impl_->shards.end(),
                      [&](const Shard& shard) { return shard.path.filename() == indexed->second; });
}

const TensorView& Checkpoint::tensor(std::string_view name) const {
  const TensorView* found = find(name);
  if (found == nullptr) {
    throw EngineError(ErrorCode::not_found,
                      fmt::format("looking up tensor {} in {}: it is not there", in_quotes(name),
                                  impl_->directory.string()));
  }
  return *found;
}

void Checkpoint::will_need(const TensorView& tensor) const {
  impl_->open_shards[tensor.shard].file.will_need(tensor.bytes);
}

}  // namespace ingot
