#pragma once

#include <string>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/jit/compiler.hpp"
#include "runtime/jit/manifest.hpp"

namespace ingot::jit {

/// What the cache remembers of one variant: its cubin, or why there is none.
struct CacheEntry {
  Manifest manifest;
  std::string barred;     ///< why this variant is not used; empty for a kernel
  std::string source;     ///< parameter block and template, for people; empty when barred
  CompiledKernel kernel;  ///< without cubin when barred; the log is kept

  bool is_barred() const { return !barred.empty(); }
};

/// One file: a kind and the format's version, named sections (manifest, source, log, resources,
/// cubin; the two big ones compressed), and a checksum over every byte before it.
enum class Packing { compressed, plain };
std::string encode_entry(const CacheEntry& entry, Packing packing = Packing::compressed);

/// Notices any changed, missing or added byte. `origin` is for messages.
/// Errors: corrupt; unsupported for an entry of a newer format.
[[nodiscard]] Result<CacheEntry> decode_entry(std::string_view bytes, std::string_view origin);

/// Resources as text, one a line: "registers 40".
std::string resources_text(const CompiledKernel& kernel);

}  // namespace ingot::jit
