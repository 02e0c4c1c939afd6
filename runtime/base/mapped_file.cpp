#include "runtime/base/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "runtime/base/why_not.hpp"

namespace ingot {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) (void)::close(fd_);  // read-only: nothing can be lost
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

Unexpected system_failure(std::string_view what, const std::filesystem::path& path) {
  const int number = errno;
  const bool is_no_file = number == ENOENT || number == ENOTDIR || number == ELOOP ||
                          number == ENAMETOOLONG || number == ENXIO;
  const auto code = is_no_file ? ErrorCode::not_found : ErrorCode::io;
  return fail(code, fmt::format("{} {}: {}", what, path.string(), why_not_read(number)));
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  // Non-blocking, so that a FIFO put in a file's place is refused below and not waited for.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return system_failure("opening", path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return system_failure("examining", path);
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("opening {}: it is {}; put a regular file there", path.string(),
                            S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe"));
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return MappedFile(nullptr, 0);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return system_failure("mapping", path);
  return MappedFile(static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) (void)::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::will_need(std::span<const std::byte> part) const {
  if (part.empty()) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data()) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(part.data()) + part.size();
  // Advice only: where it is refused, pages are read when they are touched.
  (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

void MappedFile::not_needed(std::span<const std::byte> part) const {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(part.data()) + page - 1) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(part.data()) + part.size()) / page * page;
  // The mapping is shared and only read, so that nothing is lost.
  if (begin < end) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace ingot
