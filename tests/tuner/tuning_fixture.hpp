#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/jit/kernel_store.hpp"
#include "tests/runtime/jit/fake_compiler.hpp"
#include "tuner/tuning_record.hpp"
#include "tuner/tuning_request.hpp"

namespace ingot::test {

/// Families "mma" and "simt" with a parameter TILE; `text` is in both templates.
jit::SourceTree tuning_templates(const std::string& text = "int kernel;\n");

/// Kernels of these templates, compiled by a fake; in memory alone where `directory` is empty.
std::unique_ptr<jit::KernelStore> tuning_kernels(
    const std::filesystem::path& directory = {},
    std::shared_ptr<jit::Compiler> compiler = std::make_shared<FakeCompiler>(),
    const std::string& text = "int kernel;\n");

jit::Variant tile_variant(const std::string& family, int tile);

/// Problem "rows"; candidates mma TILE 64 (the default), 16, 32, 128, then simt TILE 1 and 2.
TuningRequest tuning_request(int rows = 1);

TuningDevice tuning_device();

/// The request's key for that device, TP 1.
TuningKey tuning_key(const TuningRequest& request = tuning_request());

/// A record of the request in which candidate `chosen` won.
TuningRecord made_record(const TuningRequest& request = tuning_request(), std::size_t chosen = 2);

}  // namespace ingot::test
