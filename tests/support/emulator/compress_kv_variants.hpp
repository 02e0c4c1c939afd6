#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/compress_kv.hpp"
#include "tests/support/emulator/device.hpp"

namespace ingot::test::emulator {

/// One variant of compress_kv, compiled for the emulator.
struct CompressKvVariant {
  std::string name;
  CompressLayout layout;
  void (*launch)(const CompressData& data, const CompressStep& step, CompressMemory& memory,
                 std::uint64_t seed) = nullptr;
};

std::vector<CompressKvVariant> compress_kv_variants();

}  // namespace ingot::test::emulator
