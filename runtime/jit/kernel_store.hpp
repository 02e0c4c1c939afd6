#pragma once

#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/jit/compiler.hpp"
#include "runtime/jit/cubin_cache.hpp"
#include "runtime/jit/source_bundle.hpp"
#include "runtime/jit/variant.hpp"

namespace ingot::jit {

/// One kernel wanted for one architecture.
struct KernelRequest {
  Variant variant;
  std::string arch;
  /// Take it even if it spills registers. For defaults: slow is better than nothing. Other
  /// candidates that spill are barred.
  bool allow_spills = false;
};

/// Kernels by request: from memory, from the first cache folder that has them, else compiled and
/// written to the first folder. A folder that is missing, read-only or full is warned of once and
/// costs nothing but the time of compiling again. Any thread may call; a kernel that several want
/// at a time is compiled once, and no lock is held meanwhile.
class KernelStore {
 public:
  struct Options {
    /// In order of look-up. The first is written to, the others are only read.
    std::vector<std::filesystem::path> directories;
    /// Compiling is an error; entries of another compiler serve if they match in all else.
    bool frozen = false;
  };
  struct Stats {
    int hits = 0;      ///< found in a folder
    int compiled = 0;  ///< successfully or not
    int barred = 0;    ///< refused because of an earlier failure
    int damaged = 0;   ///< entries that could not be read and were rebuilt
    int unsaved = 0;   ///< compiled and kept in memory only
  };

  /// @param compiler  or the reason why there is none; then only the cache serves
  KernelStore(SourceTree templates, Result<std::shared_ptr<Compiler>> compiler, Options options);

  /// Errors: compile_failed (now, or when it was barred), unsupported (it spills and must not, or
  /// the compiler does not know the architecture), not_found (frozen or no compiler, and no entry),
  /// what else Compiler::compile and SourceTree::bundle return.
  [[nodiscard]] Result<std::shared_ptr<const CacheEntry>> get(const KernelRequest& request);

  /// What get() returns where it has not to be compiled: from memory, or from a folder. Null
  /// otherwise, and while another thread compiles it.
  std::shared_ptr<const CacheEntry> find(const KernelRequest& request);

  /// Whether get() would compile. Reads the entry but keeps nothing.
  bool would_compile(const KernelRequest& request) const;

  /// Records that the variant must not be used again while its key is the same: from here on in
  /// this store, and in the writable folder. Error: io; this store bars it all the same.
  [[nodiscard]] Result<void> bar(const KernelRequest& request, const std::string& reason);

  /// Why a look-up hits or misses, a line each: the file that serves it, or the nearest entry and
  /// the fields in which it differs.
  [[nodiscard]] Result<std::vector<std::string>> explain(const KernelRequest& request) const;

  /// The key fields of a request; the compiler's are empty when there is none.
  [[nodiscard]] Result<Manifest> manifest(const KernelRequest& request) const;

  Stats stats() const;

 private:
  using Outcome = Result<std::shared_ptr<const CacheEntry>>;

  Result<SourceBundle> bundle(const std::string& family) const;
  static std::string memory_key(const KernelRequest& request, const Manifest& manifest);
  Outcome find_or_compile(const KernelRequest& request, const Manifest& manifest);
  /// The entry in any folder: a kernel or a bar. Damaged ones are counted and reported.
  std::shared_ptr<const CacheEntry> look_up(const Manifest& manifest);
  std::shared_ptr<const CacheEntry> look_up_any_compiler(const Manifest& manifest) const;
  Outcome compile(const KernelRequest& request, const Manifest& manifest);
  void save(const CacheEntry& entry);
  void warn_once(const std::string& topic, const std::string& line);
  void count(int Stats::*counter);

  const SourceTree templates_;
  const Result<std::shared_ptr<Compiler>> compiler_;
  const Options options_;
  std::vector<CubinCache> layers_;

  mutable std::mutex mutex_;
  mutable std::map<std::string, Result<SourceBundle>> bundles_;  // by family
  std::map<std::string, std::shared_future<Outcome>> kernels_;   // by key
  std::map<std::string, bool> warned_;                           // by topic
  bool swept_ = false;
  Stats stats_;
};

}  // namespace ingot::jit
