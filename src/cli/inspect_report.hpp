#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/checkpoint/checkpoint.hpp"
#include "src/checkpoint/problems.hpp"
#include "src/cli/inspect_command.hpp"
#include "src/plan/memory_plan.hpp"
#include "src/weights/tensor_table.hpp"

namespace ingot {

/// What `ingot inspect` says of a checkpoint, ready to be printed.
struct InspectReport {
  struct Total {
    std::size_t tensors = 0;
    std::uint64_t bytes = 0;
  };
  /// Tensors that differ only in layer and expert: "layers.*.attn.wq_a.weight".
  struct Group {
    std::string pattern;
    Dtype dtype{};
    std::vector<std::int64_t> shape;
    std::string split;  ///< "rows", "columns", "replicated"; "not read" for what no rank loads
    Total total;
  };
  /// What each rank of a tensor-parallel group loads. All ranks load the same amount.
  struct RankBytes {
    std::uint64_t sharded = 0;
    std::uint64_t replicated = 0;
    std::uint64_t all() const { return sharded + replicated; }
  };

  std::filesystem::path model;
  std::string flavour;  ///< empty where config.json could not be read
  std::string layers;   ///< "43 (2 SWA, 21 CSA, 20 HCA)"
  std::string draft;
  Total total;
  std::map<Dtype, Total> dtypes;
  std::vector<Shard> shards;
  std::vector<Group> groups;  ///< in file order
  std::vector<int> valid_tp_sizes;
  int tp = 0;  ///< 0: not asked for, or not valid
  RankBytes rank;
  std::uint64_t rank_device_bytes = 0;  ///< of device memory, as the kernels read its weights
  std::string device_refusal;           ///< why a GPU cannot run the model so; empty if it can
  std::optional<MemoryPlan> memory;     ///< of a rank, where it was asked for and fits
  std::string memory_refusal;           ///< where it does not fit: by how much, and what would
  std::vector<std::string> notes;       ///< what is there and not read
  Problems problems;
};

/// Everything but the digests. Never fails: what is wrong is in `problems`.
InspectReport make_inspect_report(const Checkpoint& checkpoint, Problems problems,
                                  const InspectOptions& options);

}  // namespace ingot
