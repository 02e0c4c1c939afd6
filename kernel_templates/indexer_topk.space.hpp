#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string_view>
#include <vector>

#include "kernel_templates/indexer_topk.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct IndexerTopkParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/indexer_topk.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/indexer_topk.params.def"
#undef PARAM
  }
  bool operator==(const IndexerTopkParams&) const = default;
};

struct IndexerTopkProblem {
  int rows = 1;          ///< query tokens
  int entries = 262144;  ///< at most so many in a row
  int topk = 512;
  bool map_pages = true;  ///< the result is slots of a paged pool
  int page_entries = 64;

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [rows, entries, topk, map_pages, page_entries] = self;
    visit("rows", rows);
    visit("entries", entries);
    visit("topk", topk);
    visit("map_pages", map_pages);
    visit("page_entries", page_entries);
  }
};

/// The highest scores of each row, exactly. Device code: indexer_topk.cuh.
struct IndexerTopk {
  static constexpr std::string_view kStem = "indexer_topk";
  using Params = IndexerTopkParams;
  using Problem = IndexerTopkProblem;
  using Args = IndexerTopkArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  /// Blocks of a cluster have a row's scores in their registers and exchange through shared memory.
  static bool in_clusters(const Params& c) { return c.CLUSTER > 1; }
  static int chunk(const Params& c) { return indexer_topk_chunk(c.THREADS, c.VECTORS); }
  /// Blocks of a row: chunks of the longest row, or a cluster.
  static int chunks(const Problem& problem, const Params& c) {
    return in_clusters(c) ? c.CLUSTER : indexer_topk_chunks(problem.entries, chunk(c));
  }

  /// What is taken without tuning: about what ran fastest on an H200 at the size.
  static Params usual(const Problem& problem, const cu::DeviceLimits& device) {
    Params c;
    c.TOPK = problem.topk;
    c.MAP_PAGES = problem.map_pages;
    c.PAGE_ENTRIES = problem.page_entries;
    const bool clusters = device.arch == 90 && device.has_clusters &&
                          std::has_single_bit(static_cast<unsigned>(problem.topk));
    const auto in_cluster = [&](int threads, int vectors, int cluster) {
      const int scores = cluster * indexer_topk_chunk(threads, vectors);
      if (!clusters || problem.topk > 512 ||
          cluster * threads > 8 * indexer_topk_cluster_maxima(problem.topk) ||
          problem.entries > scores || scores > std::max(2 * problem.entries, 8192))
        return false;
      c.THREADS = threads;
      c.VECTORS = vectors;
      c.CLUSTER = cluster;
      return true;
    };
    const auto alone = [&](int threads, int vectors) {
      if (2 * problem.topk > threads * vectors) return false;
      c.THREADS = threads;
      c.VECTORS = vectors;
      return true;
    };
    // Small blocks, several to a multiprocessor, where rows are more than these.
    const bool many = problem.rows > device.sm_count;
    const auto room_for = [&](int cluster) { return problem.rows * cluster <= device.sm_count; };
    if (problem.entries <= 4096) {
      if (!(many ? alone(256, 4) : alone(512, 2))) c.VECTORS = 2;
    } else if (problem.entries <= 8192) {
      if (!(room_for(8) && in_cluster(512, 1, 4)) && !(room_for(2) && in_cluster(512, 2, 2)) &&
          !(many && alone(256, 8)))
        c.VECTORS = 2;
    } else if (!(room_for(8) && in_cluster(512, 2, 8)) &&
               !(problem.rows <= 4 && room_for(8) && in_cluster(1024, 4, 8)) &&
               !in_cluster(1024, 4, 2) && problem.rows > 4) {
      c.VECTORS = 8;
    }
    return c;
  }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    const Params base = usual(problem, device);
    return Space<Params>(base)
        .axis(&Params::THREADS, {256, 512, 1024})
        .axis(&Params::VECTORS, {1, 2, 4, 8})
        .axis(&Params::CLUSTER, {1, 2, 4, 8})
        .keep_if("clusters need the card and a power of two to select",
                 [=](const Params& c) {
                   return !in_clusters(c) || (device.arch >= 90 && device.has_clusters &&
                                              std::has_single_bit(static_cast<unsigned>(c.TOPK)));
                 })
        .keep_if("a cluster holds the longest row",
                 [=](const Params& c) {
                   return !in_clusters(c) || problem.entries <= c.CLUSTER * chunk(c);
                 })
        .keep_if("a chunk has enough groups to bound the selection",
                 [](const Params& c) {
                   return in_clusters(c)
                              ? indexer_topk_cluster_maxima(c.TOPK) <= c.CLUSTER * c.THREADS &&
                                    c.CLUSTER * c.THREADS <= 8 * indexer_topk_cluster_maxima(c.TOPK)
                              : 2 * c.TOPK <= c.THREADS * c.VECTORS;
                 })
        .keep_if("the candidates of a row's chunks fit one chunk",
                 [=](const Params& c) {
                   return in_clusters(c) || chunks(problem, c) <= chunk(c) / c.TOPK;
                 })
        .keep_if("shared memory fits",
                 [=](const Params& c) { return smem_bytes(c) <= device.smem_per_block_bytes; })
        .keep_if(
            "registers, where four blocks of a multiprocessor share them",
            [](const Params& c) { return !in_clusters(c) || c.THREADS > 256 || c.VECTORS > 1; })
        // From here on: legal, but cannot be the fastest.
        .keep_if("a block that is alone has two vectors a thread",
                 [](const Params& c) { return in_clusters(c) || c.VECTORS > 1; })
        .keep_if("a thread of a cluster has sixteen scores at most",
                 [](const Params& c) { return !in_clusters(c) || c.VECTORS <= 4; })
        .keep_if("a cluster is not mostly empty", [=](const Params& c) {
          return !in_clusters(c) || c.CLUSTER * chunk(c) <= std::max(2 * problem.entries, 8192);
        });
  }

  static int smem_bytes(const Params& c) {
    return in_clusters(c) ? indexer_topk_cluster_smem_bytes(c.CLUSTER, c.THREADS, c.TOPK)
                          : indexer_topk_smem_bytes(c.THREADS, c.VECTORS);
  }
  /// Of candidate_keys, and of candidate_indices.
  static std::size_t candidate_bytes(const Problem& problem, const Params& c) {
    const int count = in_clusters(c) ? 1 : chunks(problem, c);
    return count == 1 ? 0
                      : sizeof(int) * static_cast<std::size_t>(problem.rows) *
                            static_cast<std::size_t>(count) * static_cast<std::size_t>(c.TOPK);
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    return {
        .grid = {static_cast<unsigned>(chunks(problem, c)), static_cast<unsigned>(problem.rows)},
        .block = {static_cast<unsigned>(c.THREADS)},
        .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
        .cluster = {static_cast<unsigned>(c.CLUSTER)},
        .programmatic = true};
  }

  /// The model's 512 of up to 1M tokens' entries, shorter buckets, and the sibling's 1,024.
  static std::vector<Problem> sample_problems() {
    return {{}, {.entries = 2048}, {.entries = 32768}, {.topk = 1024, .map_pages = false}};
  }
};

}  // namespace ingot::kernels
