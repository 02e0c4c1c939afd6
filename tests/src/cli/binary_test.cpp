// What the built program needs at run time, read from its ELF dynamic section.
#include <elf.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <set>

#include "tests/support/run_program.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot::test;

namespace {

/// A structure at an offset of the file.
template <class T>
T at(const std::string& file, std::size_t offset) {
  REQUIRE(offset + sizeof(T) <= file.size());
  T out;
  std::memcpy(&out, file.data() + offset, sizeof(T));
  return out;
}

std::set<std::string> needed_libraries(const std::string& file) {
  const auto header = at<Elf64_Ehdr>(file, 0);
  REQUIRE(std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0);
  const auto section = [&](std::size_t index) {
    return at<Elf64_Shdr>(file, header.e_shoff + index * header.e_shentsize);
  };
  std::set<std::string> names;
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr dynamic = section(i);
    if (dynamic.sh_type != SHT_DYNAMIC) continue;
    const Elf64_Shdr strings = section(dynamic.sh_link);
    for (std::size_t at_entry = 0; at_entry < dynamic.sh_size; at_entry += sizeof(Elf64_Dyn)) {
      const auto entry = at<Elf64_Dyn>(file, dynamic.sh_offset + at_entry);
      if (entry.d_tag == DT_NEEDED) {
        names.insert(file.c_str() + strings.sh_offset + entry.d_un.d_val);
      }
      CHECK(entry.d_tag != DT_RPATH);
      CHECK(entry.d_tag != DT_RUNPATH);
    }
  }
  return names;
}

}  // namespace

TEST_CASE("the program needs nothing but glibc at run time", "[cpu][cli]") {
  if (kSanitized && skip("a sanitizer brings libraries of its own")) return;
  const char* program = std::getenv("INGOT_TEST_PROGRAM");
  const auto needed = needed_libraries(read_file(program != nullptr ? program : "build/ingot"));
  const std::set<std::string> glibc{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0",
                                    "ld-linux-x86-64.so.2"};
  CHECK(needed.contains("libc.so.6"));
  for (const std::string& name : needed) {
    CAPTURE(name);
    CHECK(glibc.contains(name));
  }
}
