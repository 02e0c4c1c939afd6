#include "runtime/jit/cubin_info.hpp"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace ingot::jit {
namespace {

// Records of .nv.info: format, attribute, 16-bit size or value; with format 4 that many bytes
// follow, which for these attributes are a symbol's index and a number, 32 bits each.
constexpr unsigned kFormatSized = 4;
constexpr unsigned kAttributeFrameSize = 0x11;
constexpr unsigned kAttributeRegisters = 0x2f;
// Since sm_90 a block's first KiB of shared memory is the system's and counted in the section.
constexpr std::uint64_t kSystemSharedBytes = 1024;
constexpr std::string_view kSharedPrefix = ".nv.shared.";
constexpr std::string_view kReservedPrefix = ".nv.shared.reserved";

template <class T>
bool read_at(std::span<const std::byte> bytes, std::uint64_t offset, T& value) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof value) return false;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return true;
}

std::string_view name_at(std::span<const std::byte> cubin, const Elf64_Shdr& names,
                         std::uint32_t offset) {
  const std::uint64_t begin = names.sh_offset + offset;
  if (begin >= cubin.size()) return {};
  const auto* text = reinterpret_cast<const char*>(cubin.data() + begin);
  return {text, ::strnlen(text, cubin.size() - begin)};
}

void read_info(std::span<const std::byte> info, Resources& found) {
  std::uint64_t at = 0;
  std::uint32_t head = 0;
  while (read_at(info, at, head)) {
    at += sizeof head;
    if ((head & 0xff) != kFormatSized) continue;
    const unsigned attribute = head >> 8 & 0xff;
    std::uint32_t number = 0;
    if (read_at(info, at + sizeof head, number)) {
      if (attribute == kAttributeRegisters) {
        found.registers = std::max(found.registers, static_cast<int>(number));
      } else if (attribute == kAttributeFrameSize) {
        found.stack_bytes += static_cast<int>(number);
      }
    }
    at += head >> 16;
  }
}

}  // namespace

Result<Resources> resources_in_cubin(std::span<const std::byte> cubin) {
  Elf64_Ehdr elf;
  Elf64_Shdr names;
  if (!read_at(cubin, 0, elf) || std::memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0 ||
      elf.e_shentsize != sizeof(Elf64_Shdr) ||
      !read_at(cubin, elf.e_shoff + std::uint64_t{elf.e_shstrndx} * sizeof names, names)) {
    return fail(ErrorCode::corrupt, "a cubin is no ELF image");
  }
  Resources found;
  std::uint64_t shared = 0;
  bool has_reserved = false;
  for (unsigned i = 0; i < elf.e_shnum; ++i) {
    Elf64_Shdr section;
    if (!read_at(cubin, elf.e_shoff + std::uint64_t{i} * sizeof section, section)) break;
    const std::string_view name = name_at(cubin, names, section.sh_name);
    if (name == ".nv.info" && section.sh_offset <= cubin.size() &&
        section.sh_size <= cubin.size() - section.sh_offset) {
      read_info(cubin.subspan(section.sh_offset, section.sh_size), found);
    } else if (name.starts_with(kReservedPrefix)) {
      has_reserved = true;
    } else if (name.starts_with(kSharedPrefix)) {
      shared = std::max<std::uint64_t>(shared, section.sh_size);
    }
  }
  if (found.registers == 0) return fail(ErrorCode::corrupt, "a cubin records no registers");
  if (has_reserved && shared >= kSystemSharedBytes) shared -= kSystemSharedBytes;
  found.smem_bytes = static_cast<int>(shared);
  found.spill_store_bytes = found.stack_bytes;
  return found;
}

}  // namespace ingot::jit
