// Any bytes as model.safetensors.index.json: refused with a reason, or every shard is a plain name.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "src/checkpoint/shard_list.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ingot::Problems problems;
  const auto index = ingot::parse_shard_index(text, "index", problems);
  if (index.has_value() != problems.empty()) std::abort();
  if (!index) return 0;
  for (const auto& [tensor, shard] : index->shard_of) {
    if (shard.find('/') != shard.npos || !shard.ends_with(".safetensors")) std::abort();
  }
  return 0;
}
