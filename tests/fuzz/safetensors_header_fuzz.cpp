// Any bytes as a safetensors file: refused with a reason, or tensors that fill the data exactly.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "src/checkpoint/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ingot::Problems problems;
  const auto file = std::as_bytes(std::span(data, size));
  const auto header = ingot::read_safetensors_header(file, "file", problems);
  if (header.has_value() != problems.empty()) std::abort();
  if (!header) return 0;
  std::uint64_t filled = 0;
  for (const ingot::SafetensorsEntry& entry : header->entries) {
    if (entry.begin != filled || entry.end < entry.begin) std::abort();
    if (ingot::tensor_bytes(entry.shape, entry.dtype) != entry.end - entry.begin) std::abort();
    filled = entry.end;
  }
  if (header->data_start + filled != size) std::abort();
  return 0;
}
