#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "runtime/base/function_ref.hpp"
#include "src/engine/engine.hpp"
#include "src/executor/page_pool.hpp"

namespace ingot::executor {

/// What the host knows of one sequence's state on the device.
struct SequenceRecord {
  int slot = 0;
  std::int64_t length = 0;
  std::int64_t rollback_floor = 0;  ///< the shortest length that can be restored
  std::vector<int> csa_pages, hca_pages;
};

/// A page that must be copied before a sequence writes it, as another holds it too.
struct PageCopy {
  int from = 0;
  int to = 0;
};

/// Slots and pages of all sequences. Knows no device: what it decides is carried out by its caller.
/// A sequence's tokens allocate nothing: its lists have room for their longest from the start.
class SequenceTable {
 public:
  /// @param max_context  tokens of the longest sequence
  SequenceTable(int slots, int csa_pages, int hca_pages, std::int64_t max_context);

  /// nullopt where all slots are taken.
  std::optional<SequenceId> create();
  /// A second holder of all pages, with a slot of its own; nullopt where all slots are taken.
  std::optional<SequenceId> fork(SequenceId sequence);
  void release(SequenceId sequence);
  SequenceRecord* find(SequenceId sequence);

  /// Pages that are to be taken so that the sequence can hold `length` tokens: new ones, and those
  /// that replace shared ones.
  int csa_pages_needed(const SequenceRecord& record, std::int64_t length) const;
  int hca_pages_needed(const SequenceRecord& record, std::int64_t length) const;
  int free_csa_pages() const { return csa_.free(); }
  int free_hca_pages() const { return hca_.free(); }
  /// Takes them. There must be as many. Returns from which page on the list is another: its size
  /// where none is.
  /// @param copy  is given each page that the sequence shared, and its own instead
  std::size_t grow_csa(SequenceRecord& record, std::int64_t length,
                       FunctionRef<void(PageCopy)> copy);
  std::size_t grow_hca(SequenceRecord& record, std::int64_t length,
                       FunctionRef<void(PageCopy)> copy);

  int slots() const { return slot_count_; }

 private:
  int slot_count_;
  std::size_t most_csa_pages_, most_hca_pages_;  // of one sequence
  std::vector<int> free_slots_;
  PagePool csa_, hca_;
  std::unordered_map<std::uint64_t, SequenceRecord> records_;
  std::uint64_t last_id_ = 0;
};

}  // namespace ingot::executor
