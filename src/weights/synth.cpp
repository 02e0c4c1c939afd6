#include "src/weights/synth.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/base/mapped_file.hpp"
#include "runtime/base/why_not.hpp"
#include "src/checkpoint/safetensors.hpp"
#include "src/weights/synth_tokenizer.hpp"
#include "src/weights/synth_values.hpp"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelName = "model.safetensors";
constexpr const char* kPartialName = "model.safetensors.partial";
constexpr std::uint64_t kChunkBytes = std::uint64_t{4} << 20;

Unexpected io_failure(std::string_view what, const fs::path& path) {
  return fail(ErrorCode::io, fmt::format("{} {}: {}", what, path.string(), why_not_written(errno)));
}

/// A file while it is written; removed on destruction unless published.
class PartialFile {
 public:
  /// Two runs into one folder would mix their bytes: the second is refused.
  static Result<PartialFile> create(const fs::path& path) {
    PartialFile file(path, ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (file.fd_ < 0) return io_failure("creating", path);
    // A file system without locks cannot tell; it is trusted.
    if (::flock(file.fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      return fail(ErrorCode::io, fmt::format("writing {}: another run is writing it; wait for it, "
                                             "or give another folder",
                                             path.string()));
    }
    file.owned_ = true;
    return file;
  }

  PartialFile(PartialFile&& other) noexcept
      : path_(std::move(other.path_)),
        fd_(std::exchange(other.fd_, -1)),
        owned_(std::exchange(other.owned_, false)) {}
  PartialFile& operator=(PartialFile&&) = delete;
  ~PartialFile() {
    if (owned_) (void)::unlink(path_.c_str());
    if (fd_ >= 0) (void)::close(fd_);
  }

  /// Reserves the whole file, so that a full disk is found before an hour of work.
  Result<void> reserve(std::uint64_t bytes) {
    if (::ftruncate(fd_, 0) != 0) return io_failure("emptying", path_);
    const auto size = static_cast<off_t>(bytes);
    if (::fallocate(fd_, 0, 0, size) == 0) return {};
    if (errno == ENOSPC || errno == EDQUOT) {
      return fail(ErrorCode::io, fmt::format("reserving {} bytes for {}: {}; free space, or give a "
                                             "folder on another disk",
                                             bytes, path_.string(), std::strerror(errno)));
    }
    // This file system cannot reserve; a full disk is found on the way.
    if (::ftruncate(fd_, size) != 0) return io_failure("sizing", path_);
    return {};
  }

  Result<void> write_at(std::uint64_t offset, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return io_failure("writing", path_);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      offset += static_cast<std::uint64_t>(written);
    }
    return {};
  }

  Result<void> publish_as(const fs::path& target) {
    if (::fsync(fd_) != 0) return io_failure("flushing", path_);
    if (::rename(path_.c_str(), target.c_str()) != 0) return io_failure("renaming", path_);
    owned_ = false;
    return {};
  }

 private:
  PartialFile(fs::path path, int fd) : path_(std::move(path)), fd_(fd) {}

  fs::path path_;
  int fd_ = -1;
  bool owned_ = false;
};

Result<void> publish_text(const fs::path& path, std::string_view text) {
  auto file = PartialFile::create(path.string() + ".partial");
  if (!file) return tl::unexpected(file.error());
  if (auto sized = file->reserve(text.size()); !sized) return sized;
  if (auto written = file->write_at(0, std::as_bytes(std::span(text))); !written) return written;
  return file->publish_as(path);
}

/// The compact header, tensors in table order, padded with spaces to a multiple of 8.
std::string header_bytes(std::span<const TensorSpec> table) {
  std::string json = "{";
  std::uint64_t offset = 0;
  for (const TensorSpec& spec : table) {
    const std::uint64_t end = offset + *tensor_bytes(spec.shape, spec.dtype);
    json += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        offset == 0 ? "" : ",", spec.name, dtype_name(spec.dtype),
                        fmt::join(spec.shape, ","), offset, end);
    offset = end;
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string out(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) {
    out[i] = static_cast<char>((std::uint64_t{json.size()} >> (8 * i)) & 0xFF);
  }
  return out + json;
}

/// A part of one tensor that one thread makes and writes.
struct Chunk {
  std::size_t tensor;
  std::uint64_t begin;  // bytes within the tensor
  std::uint64_t bytes;
  std::uint64_t file_offset;
};

std::vector<Chunk> cut_chunks(std::span<const TensorSpec> table, std::uint64_t file_offset) {
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::uint64_t total = *tensor_bytes(table[i].shape, table[i].dtype);
    for (std::uint64_t begin = 0; begin < total; begin += kChunkBytes) {
      chunks.push_back({i, begin, std::min(kChunkBytes, total - begin), file_offset + begin});
    }
    file_offset += total;
  }
  return chunks;
}

class Writer {
 public:
  Writer(const ModelConfig& config, std::uint64_t seed, const SynthProgress& progress)
      : config_(config),
        seed_(seed),
        progress_(progress),
        table_(tensor_table(config)),
        exponents_(synth_exponents(config, table_)) {}

  Result<void> write(const PartialFile& file, const std::string& header, int threads) {
    chunks_ = cut_chunks(table_, header.size());
    if (auto written = file.write_at(0, std::as_bytes(std::span(header))); !written) return written;
    {
      std::vector<std::jthread> workers;
      for (int i = 1; i < threads; ++i) {
        workers.emplace_back([&] { work(file); });
      }
      work(file);
    }
    if (error_) return tl::unexpected(*error_);
    return {};
  }

  std::span<const TensorSpec> table() const { return table_; }

 private:
  void work(const PartialFile& file) {
    std::vector<std::byte> buffer(kChunkBytes);
    for (std::size_t i = next_++; i < chunks_.size(); i = next_++) {
      const Chunk& chunk = chunks_[i];
      const TensorSpec& spec = table_[chunk.tensor];
      const std::span<std::byte> part = std::span(buffer).first(chunk.bytes);
      SynthTensor(spec, config_, exponents_[chunk.tensor], seed_)
          .fill(chunk.begin / static_cast<std::uint64_t>(dtype_bytes(spec.dtype)), part);
      const Result<void> written = file.write_at(chunk.file_offset, part);
      const std::lock_guard lock(mutex_);
      if (!written && !error_) error_ = written.error();
      if (error_) return;
      bytes_done_ += chunk.bytes;
      if (progress_) {
        progress_(bytes_done_,
                  chunks_.back().file_offset + chunks_.back().bytes - chunks_.front().file_offset);
      }
    }
  }

  const ModelConfig& config_;
  std::uint64_t seed_;
  const SynthProgress& progress_;
  std::vector<TensorSpec> table_;
  std::vector<int> exponents_;
  std::vector<Chunk> chunks_;
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;  // of what follows
  std::optional<Error> error_;
  std::uint64_t bytes_done_ = 0;
};

/// A folder that was made and may stay empty, on a full disk say: removed on destruction if so.
struct EmptyFolder {
  fs::path path;

  EmptyFolder() = default;
  EmptyFolder(const EmptyFolder&) = delete;
  EmptyFolder& operator=(const EmptyFolder&) = delete;
  ~EmptyFolder() {
    std::error_code ignored;  // one that holds something is not removed
    if (!path.empty()) fs::remove(path, ignored);
  }
};

/// That writing into `out` destroys nothing, or only what --force allows. `made`: the folder, where
/// it was not there.
Result<void> check_target(const SynthOptions& options, EmptyFolder& made) {
  const std::string attempt =
      fmt::format("writing a synthetic checkpoint into {}", options.out.string());
  std::error_code error;
  if (fs::create_directories(options.out, error)) made.path = options.out;
  if (error || !fs::is_directory(options.out)) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{}: it cannot be made a folder: {}", attempt,
                            error ? why_not_written(error.value())
                                  : "something else is there; name another folder"));
  }
  for (fs::directory_iterator entry(options.out, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name == kPartialName) continue;
    if (!options.force) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("{}: it is not empty (it holds {}); give an empty folder, or --force "
                              "to overwrite the checkpoint in it",
                              attempt, name));
    }
    if ((name.ends_with(".safetensors") && name != kModelName) ||
        name == "model.safetensors.index.json") {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("{}: it holds {}, which belongs to another checkpoint; remove that "
                              "yourself, or give another folder",
                              attempt, name));
    }
  }
  if (error)
    return fail(ErrorCode::io, fmt::format("{}: {}", attempt, why_not_read(error.value())));
  return {};
}

}  // namespace

Result<void> write_synthetic_checkpoint(const SynthOptions& options,
                                        const SynthProgress& progress) {
  const auto config_file = MappedFile::open(options.config_json);
  if (!config_file) return tl::unexpected(config_file.error());
  const auto config = parse_model_config(config_file->text(), options.config_json.string());
  if (!config) return tl::unexpected(config.error());
  if (config->num_hash_layers > 0 &&
      (config->num_experts < 2 ||
       !std::has_single_bit(static_cast<unsigned>(config->num_experts)))) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("reading {}: n_routed_experts is {}; a synthetic checkpoint with hash "
                            "layers needs a power of two: correct it",
                            options.config_json.string(), config->num_experts));
  }
  // As Python's json.dump(…, indent=2) writes it; taken before anything in `out` is touched.
  const std::string config_text =
      nlohmann::ordered_json::parse(config_file->text()).dump(2, ' ', true);
  std::vector<NamedText> tokenizer_files;
  if (options.tokenizer) {
    auto found = read_tokenizer_files(*options.tokenizer);
    if (!found) return tl::unexpected(found.error());
    tokenizer_files = std::move(*found);
  }
  EmptyFolder made_for_this;
  if (auto usable = check_target(options, made_for_this); !usable) return usable;

  Writer writer(*config, options.seed, progress);
  const std::string header = header_bytes(writer.table());
  std::uint64_t file_bytes = header.size();
  for (const TensorSpec& spec : writer.table()) {
    file_bytes += *tensor_bytes(spec.shape, spec.dtype);
  }
  auto file = PartialFile::create(options.out / kPartialName);
  if (!file) return tl::unexpected(file.error());
  if (auto sized = file->reserve(file_bytes); !sized) return sized;
  if (auto written = writer.write(*file, header, options.threads); !written) return written;

  std::error_code ignored;  // there is none unless --force
  fs::remove(options.out / "config.json", ignored);
  if (auto published = file->publish_as(options.out / kModelName); !published) return published;
  for (const NamedText& named : tokenizer_files) {
    if (auto done = publish_text(options.out / named.name, named.text); !done) return done;
  }
  return publish_text(options.out / "config.json", config_text);
}

}  // namespace ingot
