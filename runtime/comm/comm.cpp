#include "runtime/comm/comm.hpp"

#include <utility>

namespace ingot::nccl {

ncclUniqueId Comm::make_id(const NcclApi& nccl) {
  ncclUniqueId id{};
  nccl.check(nccl.ncclGetUniqueId(&id), "ncclGetUniqueId");
  return id;
}

Comm Comm::join(std::shared_ptr<const NcclApi> nccl, int ranks, const ncclUniqueId& id, int rank) {
  ncclComm_t comm = nullptr;
  nccl->check(nccl->ncclCommInitRank(&comm, ranks, id, rank), "ncclCommInitRank");
  return Comm(std::move(nccl), comm);
}

Comm::Comm(std::shared_ptr<const NcclApi> nccl, ncclComm_t comm)
    : nccl_(std::move(nccl)), comm_(comm) {}

Comm::Comm(Comm&& other) noexcept
    : nccl_(std::move(other.nccl_)), comm_(std::exchange(other.comm_, nullptr)) {}

Comm& Comm::operator=(Comm&& other) noexcept {
  std::swap(nccl_, other.nccl_);
  std::swap(comm_, other.comm_);
  return *this;
}

Comm::~Comm() {
  if (comm_ != nullptr) (void)nccl_->ncclCommAbort(comm_);
}

void Comm::all_reduce_sum(const void* from, void* to, std::size_t count, ncclDataType_t type,
                          const cu::Stream& stream) const {
  nccl_->check(nccl_->ncclAllReduce(from, to, count, type, ncclSum, comm_, stream.raw()),
               "ncclAllReduce");
}

void Comm::all_gather(const void* from, void* to, std::size_t bytes,
                      const cu::Stream& stream) const {
  nccl_->check(nccl_->ncclAllGather(from, to, bytes, ncclUint8, comm_, stream.raw()),
               "ncclAllGather");
}

void Comm::throw_if_failed() const {
  ncclResult_t background = ncclSuccess;
  nccl_->check(nccl_->ncclCommGetAsyncError(comm_, &background), "ncclCommGetAsyncError");
  nccl_->check(background, "a collective");
}

void Comm::finish() {
  nccl_->check(nccl_->ncclCommDestroy(std::exchange(comm_, nullptr)), "ncclCommDestroy");
}

}  // namespace ingot::nccl
