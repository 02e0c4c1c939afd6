#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/jit/compiler.hpp"
#include "runtime/jit/kernel_store.hpp"
#include "tuner/tuning_request.hpp"

namespace ingot {

/// The card that a choice is measured on.
struct TuningDevice {
  std::string name;  ///< "NVIDIA H200"
  std::string arch;  ///< that kernels are compiled for: "sm_90a"
  int sm_count = 0;
  std::string driver_branch;  ///< cu::driver_branch

  bool operator==(const TuningDevice&) const = default;
};

/// Everything that a choice of parameters depends on, readable, one field a line in a fixed order.
/// Unlike a cubin's key it names the card and the driver; like it, nothing of the machine beyond.
struct TuningKey {
  static constexpr int kSchema = 1;

  struct Family {
    std::string stem;
    std::string source_digest;  ///< of the template with all it includes
    bool operator==(const Family&) const = default;
  };

  int schema = kSchema;
  std::vector<Family> families = {};
  std::vector<ProblemField> problem = {};
  int tp_size = 1;
  TuningDevice device = {};
  jit::CompilerIdentity compiler = {};
  std::string space_digest = {};
  std::string policy = {};  ///< how it is measured and searched, a line

  /// schema 1 / family rms_norm <digest> / problem hidden 4096 / tp 1 / device … / …
  std::string text() const;
  /// The reverse. Error: corrupt.
  [[nodiscard]] static Result<TuningKey> parse(std::string_view text);

  /// 32 hexadecimal digits over all fields but the compiler's.
  std::string key() const;
  /// 16 hexadecimal digits over the compiler's fields.
  std::string compiler_key() const;
  /// "fp8_linear+fp8_linear_sm90 cols=4096 tokens=1 on NVIDIA H200, TP 1", for messages.
  std::string title() const;

  bool operator==(const TuningKey&) const = default;
};

/// The key of a request. The digests and the compiler are the store's.
/// Errors: those of jit::KernelStore::manifest; invalid_argument for a request without candidates.
[[nodiscard]] Result<TuningKey> key_of(const TuningRequest& request, const TuningDevice& device,
                                       int tp_size, const std::string& policy,
                                       const jit::KernelStore& kernels);

/// One sentence per field that differs: "driver: wanted 580, the record has 570".
std::vector<std::string> differences(const TuningKey& wanted, const TuningKey& record);

}  // namespace ingot
