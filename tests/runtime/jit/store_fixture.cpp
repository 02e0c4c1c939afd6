#include "tests/runtime/jit/store_fixture.hpp"

#include <stdexcept>

namespace ingot::test {

jit::SourceTree small_templates(const std::string& shared) {
  return jit::SourceTree({{"k.cuh", "#include \"common/shared.cuh\"\nint kernel;\n"},
                          {"other.cuh", "int other;\n"},
                          {"common/shared.cuh", shared}});
}

jit::KernelRequest request(int number) {
  return {.variant = {.family = "k", .params = {{"int", "N", number}, {"bool", "SINK", 1}}},
          .arch = "sm_80"};
}

jit::KernelStore make_store(const std::vector<std::filesystem::path>& directories,
                            std::shared_ptr<jit::Compiler> compiler, bool frozen) {
  return jit::KernelStore(small_templates(), std::move(compiler),
                          {.directories = directories, .frozen = frozen});
}

std::vector<std::string> damage_in(const std::filesystem::path& directory) {
  std::vector<std::string> damage;
  for (const auto& file : jit::CubinCache(directory).files()) {
    if (const auto entry = jit::CubinCache::read(file.path); !entry) {
      damage.push_back(entry.error().message);
    }
  }
  return damage;
}

std::filesystem::path only_file(const std::filesystem::path& directory) {
  const auto files = jit::CubinCache(directory).files();
  if (files.size() != 1) throw std::runtime_error("not one entry in " + directory.string());
  return files[0].path;
}

}  // namespace ingot::test
