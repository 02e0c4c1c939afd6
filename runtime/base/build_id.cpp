#include "runtime/base/build_id.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <vector>

#include "runtime/base/hash.hpp"

namespace ingot {
namespace {

constexpr std::uint64_t kMostNoteBytes = 1 << 20;  // a note segment is a few hundred bytes

bool read_at(std::ifstream& in, std::uint64_t offset, void* to, std::size_t bytes) {
  in.clear();
  in.seekg(static_cast<std::streamoff>(offset));
  in.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
  return static_cast<std::size_t>(in.gcount()) == bytes;
}

std::size_t align4(std::size_t value) {
  return (value + 3) & ~std::size_t{3};
}

/// The build id in one note segment; empty if it has none or is malformed.
std::string id_in_notes(const std::vector<char>& notes) {
  std::size_t at = 0;
  while (at + sizeof(Elf64_Nhdr) <= notes.size()) {
    Elf64_Nhdr header;
    std::memcpy(&header, notes.data() + at, sizeof header);
    const std::size_t name_at = at + sizeof header;
    if (header.n_namesz > notes.size() || header.n_descsz > notes.size()) return {};
    const std::size_t id_at = name_at + align4(header.n_namesz);
    const std::size_t next = id_at + align4(header.n_descsz);
    if (id_at + header.n_descsz > notes.size()) return {};
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 &&
        std::memcmp(notes.data() + name_at, "GNU", 4) == 0) {
      std::string id;
      for (std::size_t i = 0; i < header.n_descsz; ++i) {
        id += fmt::format("{:02x}", static_cast<unsigned char>(notes[id_at + i]));
      }
      return id;
    }
    at = next;
  }
  return {};
}

}  // namespace

Result<std::string> build_id_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return fail(ErrorCode::not_found, fmt::format("cannot open {}", file.string()));

  Elf64_Ehdr elf;
  if (read_at(in, 0, &elf, sizeof elf) && std::memcmp(elf.e_ident, ELFMAG, SELFMAG) == 0 &&
      elf.e_phentsize == sizeof(Elf64_Phdr)) {
    for (int i = 0; i < elf.e_phnum; ++i) {
      Elf64_Phdr segment;
      if (!read_at(in, elf.e_phoff + static_cast<std::uint64_t>(i) * sizeof segment, &segment,
                   sizeof segment)) {
        break;
      }
      if (segment.p_type != PT_NOTE || segment.p_filesz > kMostNoteBytes) continue;
      std::vector<char> notes(segment.p_filesz);
      if (!read_at(in, segment.p_offset, notes.data(), notes.size())) break;
      if (std::string id = id_in_notes(notes); !id.empty()) return id;
    }
  }

  const auto digest = digest_file(file);
  if (!digest) return tl::unexpected(digest.error());
  return "xxh3-" + digest->hex();
}

}  // namespace ingot
