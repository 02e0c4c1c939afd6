#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/jit/bundle.hpp"
#include "runtime/jit/kernel_store.hpp"
#include "src/cli/cache_command.hpp"
#include "tuner/tuning_record.hpp"

/// The part of `ingot cache` that looks after tuning records.
namespace ingot {

struct TuningList {
  int records = 0;
  int damaged = 0;
  std::uint64_t bytes = 0;
};
/// A line for each record: what it is for, the choice, the gain over the default, ties and bars.
TuningList list_tunings(const CacheOptions& options, std::FILE* out);

/// The choices of all whole records as tables in Markdown, those damaged with a warning.
void print_choice_tables(const CacheOptions& options, std::FILE* out);

/// For each record of the family and architecture a line, and what of this machine (templates,
/// NVRTC, the way of measuring, the card if there is one) keeps it from being used.
std::vector<std::string> explain_tunings(const CacheOptions& options, const jit::KernelStore& store,
                                         const jit::KernelRequest& request);

struct TuningExport {
  std::vector<jit::BundleFile> files;
  int damaged = 0;  ///< left out
};
/// The records of all layers, of several with one name the first.
TuningExport export_tunings(const CacheOptions& options);

/// The records of a bundle. Throws EngineError for a file of it that is no whole record under its
/// own name.
std::vector<TuningRecord> tunings_of(const jit::Bundle& bundle, const std::filesystem::path& file);

/// Publishes records, but for those that are there and complete. Throws EngineError(io).
jit::ImportResult import_tunings(const std::vector<TuningRecord>& records,
                                 const TuningCache& cache);

}  // namespace ingot
