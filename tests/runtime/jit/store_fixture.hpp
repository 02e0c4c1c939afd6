#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/jit/kernel_store.hpp"
#include "tests/runtime/jit/fake_compiler.hpp"

namespace ingot::test {

/// A family "k" with a parameter N, which includes common/shared.cuh, and a family "other", which
/// does not.
jit::SourceTree small_templates(const std::string& shared = "constexpr int SHARED = 1;\n");

/// Variant N = `number` of family "k" for sm_80.
jit::KernelRequest request(int number);

/// A store over `directories` that compiles with `compiler`.
jit::KernelStore make_store(const std::vector<std::filesystem::path>& directories,
                            std::shared_ptr<jit::Compiler> compiler, bool frozen = false);

/// Why entries of the folder are bad; empty when all are whole and under their own key.
std::vector<std::string> damage_in(const std::filesystem::path& directory);

/// A folder's only entry.
std::filesystem::path only_file(const std::filesystem::path& directory);

}  // namespace ingot::test
