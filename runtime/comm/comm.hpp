#pragma once

#include <memory>

#include "runtime/comm/nccl_api.hpp"
#include "runtime/cuda/stream.hpp"

namespace ingot::nccl {

/// One rank of a communicator; used by that rank's thread alone, its context current.
/// After a clean run call finish(). Destroyed without it — on the error path — it aborts.
/// Graphs that captured its collectives, executable ones included, must be destroyed before: since
/// NCCL 2.26 both finish() and abort wait until they are.
class Comm {
 public:
  /// A token that all ranks of one communicator share. Made by one of them.
  static ncclUniqueId make_id(const NcclApi& nccl);

  /// Blocks until all `ranks` have called. The rank's device is the one whose context is current.
  /// Throws EngineError(nccl).
  static Comm join(std::shared_ptr<const NcclApi> nccl, int ranks, const ncclUniqueId& id,
                   int rank);

  Comm(Comm&& other) noexcept;
  Comm& operator=(Comm&& other) noexcept;
  ~Comm();

  /// Adds `count` elements over all ranks, on the stream. `from` may be `to`.
  void all_reduce_sum(const void* from, void* to, std::size_t count, ncclDataType_t type,
                      const cu::Stream& stream) const;
  /// Every rank's `bytes` side by side at `to`, on the stream. `from` may be the own place there.
  void all_gather(const void* from, void* to, std::size_t bytes, const cu::Stream& stream) const;
  /// Throws EngineError(nccl) if a collective failed in the background.
  void throw_if_failed() const;
  /// Takes the communicator down in order; every rank does it. Throws EngineError(nccl).
  void finish();

 private:
  Comm(std::shared_ptr<const NcclApi> nccl, ncclComm_t comm);

  std::shared_ptr<const NcclApi> nccl_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace ingot::nccl
