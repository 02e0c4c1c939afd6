#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/jit/compiler.hpp"
#include "runtime/jit/source_bundle.hpp"
#include "runtime/jit/variant.hpp"

namespace ingot::bench {

/// Where a traced kernel leaves its stamps: words from this byte of the exchange buffer on,
/// kTraceWords of each block.
constexpr std::size_t kTraceAt = std::size_t{128} << 20;
constexpr int kTraceWords = 512;
/// Dynamic shared memory that it needs beside what the family asks for.
constexpr int kTraceBytes = kTraceWords * 4;

/// A wgmma family's template with clock stamps in it, for one variant: the instrument is no part of
/// the template. Each stamp's place is a line of the template; error not_found when that line is
/// not there exactly once. `smem_bytes`: what the untraced variant is launched with.
[[nodiscard]] Result<jit::CompileJob> traced_job(jit::SourceBundle bundle,
                                                 const jit::Variant& variant,
                                                 const std::string& arch, int smem_bytes);

/// Mean clocks of every step of every role, by tile, medians over the blocks.
/// @param words  kTraceWords of each block
/// @param tiles  of a block, as many as are printed at most
std::string trace_table(std::span<const std::uint32_t> words, int tiles);

}  // namespace ingot::bench
