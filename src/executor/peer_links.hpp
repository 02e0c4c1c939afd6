#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "kernel_templates/all_gather.args.h"
#include "kernel_templates/all_reduce.args.h"
#include "kernel_templates/all_reduce_wide.args.h"
#include "runtime/comm/comm.hpp"
#include "runtime/cuda/context.hpp"
#include "runtime/cuda/device_buffer.hpp"
#include "runtime/cuda/pinned_buffer.hpp"
#include "runtime/cuda/stream.hpp"
#include "src/checkpoint/model_config.hpp"

namespace ingot::executor {

/// Memory in which the other tensor parallel ranks leave words for this one: what kernels of the
/// families all_reduce, all_reduce_wide and all_gather take. Made, used and destroyed on the rank's
/// thread, but for stop().
class PeerLinks {
 public:
  /// @param step_rows  of the largest step
  /// @param limit_ms   that a kernel waits for another rank
  /// Throws EngineError(cuda) where memory does not suffice.
  PeerLinks(const cu::Context& context, const cu::Stream& stream, const ModelConfig& config,
            int tp_rank, int tp_size, int step_rows, int limit_ms);

  /// Learns where the other ranks' memory is, and lets this card's kernels reach it.
  /// @param all     every rank's links, in order
  /// @param logits  every rank's place for all logits
  /// @param memory  every rank's step memory, laid out alike, or none where no result is written
  ///                into another's
  /// Throws EngineError(unsupported) where the card cannot reach another's memory.
  void connect(std::span<PeerLinks* const> all, std::span<float* const> logits,
               std::span<std::byte* const> memory = {});

  /// Instead: joins a communicator, which carries words from now on. All ranks at a time. Graphs
  /// that hold its collectives must be gone before these links are destroyed.
  void join(std::shared_ptr<const nccl::NcclApi> nccl, const nccl::ncclUniqueId& id, float* logits,
            const cu::Stream& stream);
  int ranks() const { return tp_size_; }
  bool has_nccl() const { return nccl_.has_value(); }
  const nccl::Comm& nccl() const { return *nccl_; }
  /// Takes the communicator down in order, on all ranks at a time.
  void finish_nccl();
  /// Takes it down where a rank has failed.
  void drop_nccl() { nccl_.reset(); }

  /// Everything but what is summed and where to.
  kernels::AllReduceArgs reduce_args() const;
  /// Of up to `step_rows` rows.
  kernels::AllReduceWideArgs wide_reduce_args() const;
  kernels::AllGatherArgs gather_args() const;

  /// Where another rank has what lies at `own` in this rank's step memory.
  template <class T>
  T* of_rank(int rank, T* own) const {
    return reinterpret_cast<T*>(memory_of_[rank] +
                                (reinterpret_cast<std::byte*>(own) - memory_of_[tp_rank_]));
  }

  bool is_stopped() const;
  /// Ends the waiting of this rank's kernels, now and from here on. Any thread.
  void stop() noexcept;
  /// Throws EngineError(cuda) where a kernel gave up waiting for another rank: what it left is not
  /// to be used.
  void throw_if_stopped() const;

 private:
  std::uint32_t* status() const;

  const cu::Context& context_;
  const int tp_rank_, tp_size_, limit_ms_;
  const std::int64_t slot_words_, wide_slot_bytes_;
  cu::DeviceBuffer memory_;  // inboxes, flags, counts of all
  cu::PinnedBuffer host_;
  std::optional<nccl::Comm> nccl_;
  kernels::u64* inbox_[kernels::LINK_RANKS] = {};
  kernels::u8* wide_inbox_[kernels::LINK_RANKS] = {};
  kernels::u32* flags_[kernels::LINK_RANKS] = {};  // of gatherings, then of wide sums
  kernels::u32* counts_ = nullptr;                 // of sums, gatherings, wide sums
  float* logits_[kernels::LINK_RANKS] = {};
  std::byte* memory_of_[kernels::LINK_RANKS] = {};
};

}  // namespace ingot::executor
