#pragma once

#include <vector>

#include "kernel_templates/sparse_mla_decode.args.h"

namespace ingot::kernels {

/// What the sparse MLA decode families are asked to do, with the layout of the KV pools.
struct SparseMlaDecodeProblem {
  int rows = 1;    ///< query tokens of a launch: requests times their tokens of this step
  int heads = 64;  ///< of this rank
  int window_slots = 128;
  int selected_slots = 512;
  bool has_sink = true;
  bool inverse_rope = true;
  int window_page_entries = KV_PAGE_ENTRIES;
  int window_page_bytes = KV_PAGE_BYTES;
  int selected_page_entries = KV_PAGE_ENTRIES;
  int selected_page_bytes = KV_PAGE_BYTES;
  int entry_stride = KV_ENTRY_STRIDE;
  bool scales_beside = KV_SCALES_BESIDE;

  int keys() const { return window_slots + selected_slots; }
  /// Keys of the longest of `pieces` pieces of a row (sparse_mla::piece_of on the device).
  int piece_keys(int pieces) const { return (keys() + pieces * 8 - 1) / (pieces * 8) * 8; }

  template <class Params>
  void apply_to(Params& params) const {
    params.HAS_SINK = has_sink;
    params.INVERSE_ROPE = inverse_rope;
    params.WINDOW_PAGE_ENTRIES = window_page_entries;
    params.WINDOW_PAGE_BYTES = window_page_bytes;
    params.SELECTED_PAGE_ENTRIES = selected_page_entries;
    params.SELECTED_PAGE_BYTES = selected_page_bytes;
    params.ENTRY_STRIDE = entry_stride;
    params.SCALES_BESIDE = scales_beside;
  }

  /// DeepSeek-V4-Flash on one card and on one of eight: a window alone, with 64 and 1,024
  /// contiguous compressed keys, with 512 selected ones; a draft of three tokens.
  static std::vector<SparseMlaDecodeProblem> samples() {
    std::vector<SparseMlaDecodeProblem> problems;
    for (const int heads : {64, 8}) {
      for (const int rows : {1, 16, 128})
        problems.push_back({.rows = rows, .heads = heads});
      problems.push_back({.rows = 4, .heads = heads, .selected_slots = 0});
      problems.push_back({.rows = 64, .heads = heads, .selected_slots = 64});
      problems.push_back({.rows = 3, .heads = heads, .selected_slots = 1024});
    }
    return problems;
  }

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [rows, heads, window_slots, selected_slots, has_sink, inverse_rope, window_page_entries,
           window_page_bytes, selected_page_entries, selected_page_bytes, entry_stride,
           scales_beside] = self;
    visit("rows", rows);
    visit("heads", heads);
    visit("window_slots", window_slots);
    visit("selected_slots", selected_slots);
    visit("has_sink", has_sink);
    visit("inverse_rope", inverse_rope);
    visit("window_page_entries", window_page_entries);
    visit("window_page_bytes", window_page_bytes);
    visit("selected_page_entries", selected_page_entries);
    visit("selected_page_bytes", selected_page_bytes);
    visit("entry_stride", entry_stride);
    visit("scales_beside", scales_beside);
  }
};

}  // namespace ingot::kernels
