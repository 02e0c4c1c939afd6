#include "src/executor/peer_links.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "src/plan/step_bucket.hpp"

namespace ingot::executor {
namespace {

constexpr std::uint64_t kCountBytes = std::uint64_t{kernels::LINK_COUNTERS} * 4;

std::int64_t slot_words(const ModelConfig& config) {
  const std::int64_t words =
      kernels::all_reduce_words(std::int64_t{kMostSliceRows} * config.hidden_size, true);
  return (words + 31) / 32 * 32;
}

std::int64_t wide_slot_bytes(const ModelConfig& config, int tp_size, int step_rows) {
  if (step_rows <= kMostSliceRows) return 0;
  const std::int64_t bytes =
      kernels::all_reduce_wide_slot_bytes(std::int64_t{step_rows} * config.hidden_size, tp_size);
  return (bytes + 255) / 256 * 256;
}

/// How the memory of a rank is divided, in order.
struct Places {
  Places(int tp_size, std::int64_t slot_words, std::int64_t wide_slot_bytes)
      : ranks(static_cast<std::uint64_t>(tp_size)),
        wide_inbox(8 * 2 * ranks * static_cast<std::uint64_t>(slot_words)),
        flags(wide_inbox + ranks * static_cast<std::uint64_t>(wide_slot_bytes)),
        counts(flags + 3 * ranks * kCountBytes),
        end(counts + 3 * kCountBytes) {}

  std::uint64_t ranks;
  std::uint64_t wide_inbox, flags, counts, end;
};

}  // namespace

PeerLinks::PeerLinks(const cu::Context& context, const cu::Stream& stream,
                     const ModelConfig& config, int tp_rank, int tp_size, int step_rows,
                     int limit_ms)
    : context_(context),
      tp_rank_(tp_rank),
      tp_size_(tp_size),
      limit_ms_(limit_ms),
      slot_words_(slot_words(config)),
      wide_slot_bytes_(wide_slot_bytes(config, tp_size, step_rows)),
      memory_(
          cu::DeviceBuffer::allocate(context, Places(tp_size, slot_words_, wide_slot_bytes_).end)),
      host_(cu::PinnedBuffer::allocate(context, sizeof(std::uint32_t))) {
  memory_.fill_bytes(stream, 0);
  *status() = kernels::LINK_GOOD;
  const Places places(tp_size, slot_words_, wide_slot_bytes_);
  inbox_[tp_rank] = memory_.as<kernels::u64>();
  wide_inbox_[tp_rank] = memory_.as<kernels::u8>() + places.wide_inbox;
  flags_[tp_rank] = reinterpret_cast<kernels::u32*>(memory_.as<kernels::u8>() + places.flags);
  counts_ = reinterpret_cast<kernels::u32*>(memory_.as<kernels::u8>() + places.counts);
}

std::uint32_t* PeerLinks::status() const {
  return reinterpret_cast<std::uint32_t*>(host_.bytes().data());
}

void PeerLinks::connect(std::span<PeerLinks* const> all, std::span<float* const> logits,
                        std::span<std::byte* const> memory) {
  for (std::size_t r = 0; r < all.size(); ++r) {
    const cu::Context& peer = all[r]->context_;
    if (peer.device().ordinal != context_.device().ordinal) {
      if (!context_.can_access(peer)) {
        throw EngineError(
            ErrorCode::unsupported,
            fmt::format("connecting tensor parallel ranks: device {} ({}) cannot reach the memory "
                        "of device {}; `ingot doctor` shows which pairs can",
                        context_.device().ordinal, context_.device().name, peer.device().ordinal));
      }
      context_.enable_peer_access(peer);
    }
    logits_[r] = logits[r];
    if (!memory.empty()) memory_of_[r] = memory[r];
    if (all[r] == this) continue;  // its places are read by the other ranks' threads just now
    inbox_[r] = all[r]->inbox_[r];
    wide_inbox_[r] = all[r]->wide_inbox_[r];
    flags_[r] = all[r]->flags_[r];
  }
}

void PeerLinks::join(std::shared_ptr<const nccl::NcclApi> nccl, const nccl::ncclUniqueId& id,
                     float* logits, const cu::Stream& stream) {
  nccl_.emplace(nccl::Comm::join(std::move(nccl), tp_size_, id, tp_rank_));
  // Nothing of another rank's is written to: every place is this rank's own.
  std::fill_n(inbox_, tp_size_, inbox_[tp_rank_]);
  std::fill_n(flags_, tp_size_, flags_[tp_rank_]);
  std::fill_n(logits_, tp_size_, logits);
  // Ranks connect at their first collective, which a recording forbids.
  kernels::u64* const place = inbox_[tp_rank_];
  nccl_->all_gather(place + 2 * tp_rank_, place, 16, stream);
  stream.synchronize();
}

void PeerLinks::finish_nccl() {
  if (nccl_) nccl_->finish();
}

kernels::AllReduceArgs PeerLinks::reduce_args() const {
  kernels::AllReduceArgs args{};
  std::copy_n(inbox_, tp_size_, args.inbox);
  args.counts = counts_;
  args.status = status();
  args.slot_words = slot_words_;
  args.limit_ms = static_cast<kernels::u32>(limit_ms_);
  args.halves = nccl_ ? 1 : 2;
  args.rank = tp_rank_;
  args.parts = kernels::EXCHANGE_WHOLE;
  return args;
}

kernels::AllReduceWideArgs PeerLinks::wide_reduce_args() const {
  kernels::AllReduceWideArgs args{};
  std::copy_n(wide_inbox_, tp_size_, args.inbox);
  for (int rank = 0; rank < tp_size_; ++rank)
    args.flags[rank] = flags_[rank] + tp_size_ * kernels::LINK_COUNTERS;
  args.counts = counts_ + 2 * kernels::LINK_COUNTERS;
  args.status = status();
  args.slot_bytes = wide_slot_bytes_;
  args.limit_ms = static_cast<kernels::u32>(limit_ms_);
  args.rank = tp_rank_;
  return args;
}

kernels::AllGatherArgs PeerLinks::gather_args() const {
  kernels::AllGatherArgs args{};
  std::copy_n(logits_, tp_size_, args.out);
  std::copy_n(flags_, tp_size_, args.flags);
  args.counts = counts_ + kernels::LINK_COUNTERS;
  args.status = status();
  args.limit_ms = static_cast<kernels::u32>(limit_ms_);
  args.rank = tp_rank_;
  args.destinations = 1;
  args.parts = kernels::EXCHANGE_WHOLE;
  return args;
}

bool PeerLinks::is_stopped() const {
  return std::atomic_ref(*status()).load() != kernels::LINK_GOOD;
}

void PeerLinks::stop() noexcept {
  std::uint32_t good = kernels::LINK_GOOD;
  std::atomic_ref(*status()).compare_exchange_strong(good, kernels::LINK_STOPPED);
}

void PeerLinks::throw_if_stopped() const {
  const std::uint32_t now = std::atomic_ref(*status()).load();
  if (now == kernels::LINK_GOOD) return;
  throw EngineError(
      ErrorCode::cuda,
      now == kernels::LINK_TIMED_OUT
          ? fmt::format(
                "running a step: rank {} on device {} ({}) waited {} ms for another rank, "
                "which did not answer; see the kernel log (dmesg) for a failed card or link",
                tp_rank_, context_.device().ordinal, context_.device().name, limit_ms_)
          : fmt::format("running a step: rank {} was stopped, as another rank failed", tp_rank_));
}

}  // namespace ingot::executor
