#include "src/executor/sequence_table.hpp"

#include <algorithm>
#include <cstddef>

#include "src/executor/device_state.hpp"

namespace ingot::executor {
namespace {

std::uint64_t number(SequenceId sequence) {
  return static_cast<std::uint64_t>(sequence);
}

/// Pages [first, end) that hold the entries which the tokens from `from` to `to` complete.
struct PageRange {
  std::size_t first = 0, end = 0;
};
PageRange written_pages(std::int64_t from, std::int64_t to, std::int64_t page_tokens) {
  const std::int64_t ratio = page_tokens / 64;
  const std::int64_t first_entry = from / ratio, end_entry = to / ratio;
  if (first_entry == end_entry) {
    const auto page = static_cast<std::size_t>(first_entry / 64);
    return {page, page};
  }
  return {static_cast<std::size_t>(first_entry / 64),
          static_cast<std::size_t>((end_entry + 63) / 64)};
}

int pages_needed(const PagePool& pool, const std::vector<int>& pages, const PageRange& range) {
  int needed = 0;
  for (std::size_t i = range.first; i < range.end; ++i)
    needed += i >= pages.size() || pool.is_shared(pages[i]) ? 1 : 0;
  return needed;
}

std::size_t grow(PagePool& pool, std::vector<int>& pages, const PageRange& range,
                 FunctionRef<void(PageCopy)> copy) {
  std::size_t first = pages.size();
  for (std::size_t i = range.first; i < range.end; ++i) {
    if (i >= pages.size()) {
      pages.push_back(pool.take());
    } else if (pool.is_shared(pages[i])) {
      const int own = pool.take();
      copy({pages[i], own});
      pool.release(pages[i]);
      pages[i] = own;
      first = std::min(first, i);
    }
  }
  return first;
}

std::size_t most_pages(int pool, std::int64_t max_context, std::int64_t page_tokens) {
  const std::int64_t pages = (max_context + page_tokens - 1) / page_tokens;
  return static_cast<std::size_t>(std::min<std::int64_t>(pool, pages));
}

}  // namespace

SequenceTable::SequenceTable(int slots, int csa_pages, int hca_pages, std::int64_t max_context)
    : slot_count_(slots),
      most_csa_pages_(most_pages(csa_pages, max_context, kCsaPageTokens)),
      most_hca_pages_(most_pages(hca_pages, max_context, kHcaPageTokens)),
      csa_(csa_pages),
      hca_(hca_pages) {
  for (int slot = slots - 1; slot >= 0; --slot)
    free_slots_.push_back(slot);
}

std::optional<SequenceId> SequenceTable::create() {
  if (free_slots_.empty()) return std::nullopt;
  SequenceRecord record;
  record.slot = free_slots_.back();
  record.csa_pages.reserve(most_csa_pages_);
  record.hca_pages.reserve(most_hca_pages_);
  free_slots_.pop_back();
  records_.emplace(++last_id_, std::move(record));
  return SequenceId{last_id_};
}

std::optional<SequenceId> SequenceTable::fork(SequenceId sequence) {
  const auto made = create();
  if (!made) return std::nullopt;
  SequenceRecord& copy = *find(*made);
  const int slot = copy.slot;
  copy = *find(sequence);
  copy.slot = slot;
  for (const int page : copy.csa_pages)
    csa_.share(page);
  for (const int page : copy.hca_pages)
    hca_.share(page);
  return made;
}

void SequenceTable::release(SequenceId sequence) {
  SequenceRecord* record = find(sequence);
  if (record == nullptr) return;
  for (const int page : record->csa_pages)
    csa_.release(page);
  for (const int page : record->hca_pages)
    hca_.release(page);
  free_slots_.push_back(record->slot);
  records_.erase(number(sequence));
}

SequenceRecord* SequenceTable::find(SequenceId sequence) {
  const auto found = records_.find(number(sequence));
  return found == records_.end() ? nullptr : &found->second;
}

int SequenceTable::csa_pages_needed(const SequenceRecord& record, std::int64_t length) const {
  if (csa_.size() == 0) return 0;
  return pages_needed(csa_, record.csa_pages, written_pages(record.length, length, kCsaPageTokens));
}

int SequenceTable::hca_pages_needed(const SequenceRecord& record, std::int64_t length) const {
  if (hca_.size() == 0) return 0;
  return pages_needed(hca_, record.hca_pages, written_pages(record.length, length, kHcaPageTokens));
}

std::size_t SequenceTable::grow_csa(SequenceRecord& record, std::int64_t length,
                                    FunctionRef<void(PageCopy)> copy) {
  if (csa_.size() == 0) return 0;
  return grow(csa_, record.csa_pages, written_pages(record.length, length, kCsaPageTokens), copy);
}

std::size_t SequenceTable::grow_hca(SequenceRecord& record, std::int64_t length,
                                    FunctionRef<void(PageCopy)> copy) {
  if (hca_.size() == 0) return 0;
  return grow(hca_, record.hca_pages, written_pages(record.length, length, kHcaPageTokens), copy);
}

}  // namespace ingot::executor
