#pragma once
// Where entries lie in the pages of the KV pools unless a problem says otherwise. The one owner of
// these numbers: the families that write entries and those that read them take their defaults here.

namespace ingot::kernels {

// An entry's 8 scale bytes follow its 576 bytes of data, and one copy of 592 brings both: an odd
// number of 16-byte words, as entries also lie in shared memory.
constexpr bool KV_SCALES_BESIDE = true;
constexpr int KV_ENTRY_STRIDE = 592;
constexpr int KV_PAGE_ENTRIES = 64;
constexpr int KV_PAGE_BYTES = KV_PAGE_ENTRIES * KV_ENTRY_STRIDE;

}  // namespace ingot::kernels
