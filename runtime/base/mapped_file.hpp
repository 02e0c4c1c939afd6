#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "runtime/base/error.hpp"

namespace ingot {

/// A whole file mapped read-only for as long as the object lives. Mapping reads nothing: pages come
/// from disk when they are touched. Any thread may read. A file that another program cuts while it
/// is mapped faults on access (SIGBUS); callers check lengths when they open, not when they read.
class MappedFile {
 public:
  /// Errors: not_found (no such file), invalid_argument (a folder, a device), io (permission …);
  /// the message names the file.
  [[nodiscard]] static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

  /// Tells the kernel that `part` of bytes() is wanted soon, so that it reads ahead.
  void will_need(std::span<const std::byte> part) const;

  /// Takes the whole pages of `part` out of this process's memory; they are read again when
  /// touched.
  void not_needed(std::span<const std::byte> part) const;

 private:
  MappedFile(const std::byte* data, std::size_t size) : data_(data), size_(size) {}

  const std::byte* data_ = nullptr;  // null for an empty file, which cannot be mapped
  std::size_t size_ = 0;
};

}  // namespace ingot
