// SPDX-License-Identifier: Apache-2.0
#include "calibrate/collectives/communicator.h"

#include <cstring>

namespace trifold::calibrate {

using hardware::Collective;

Result<std::vector<std::uint8_t>> new_nccl_id() {
  ncclUniqueId id{};
  NCCL_TRY(ncclGetUniqueId(&id));
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&id);
  return std::vector<std::uint8_t>(bytes, bytes + sizeof(id));
}

Communicator::Communicator(Communicator&& other) noexcept { *this = std::move(other); }

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  std::swap(comm_, other.comm_);
  std::swap(rank_, other.rank_);
  std::swap(ranks_, other.ranks_);
  std::swap(scratch_, other.scratch_);
  return *this;
}

Result<void> Communicator::open(Device& device, Control& control,
                                const std::vector<std::uint8_t>& id) {
  rank_ = control.rank();
  ranks_ = control.world();
  if (ranks_ == 1) return {};
  ncclUniqueId unique{};
  std::memcpy(&unique, id.data(), std::min(sizeof(unique), id.size()));
  NCCL_TRY(ncclCommInitRank(&comm_, ranks_, unique, rank_));
  CUDA_TRY(cudaMalloc(reinterpret_cast<void**>(&scratch_), 256));
  CUDA_TRY(cudaMemset(scratch_, 0, 256));
  TRIFOLD_TRY(align(device.stream));
  return wait_for(device.stream, 60, [&control] { return control.aborted(); });
}

Result<Communicator> Communicator::split(Control& control, int size, int max_ctas) const {
  Communicator part;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (max_ctas > 0) {
    config.minCTAs = 1;
    config.maxCTAs = max_ctas;
  }
  NCCL_TRY(ncclCommSplit(comm_, rank_ / size, rank_ % size, &part.comm_,
                         max_ctas > 0 ? &config : nullptr));
  part.rank_ = rank_ % size;
  part.ranks_ = size;
  CUDA_TRY(cudaMalloc(reinterpret_cast<void**>(&part.scratch_), 256));
  CUDA_TRY(cudaMemset(part.scratch_, 0, 256));
  TRIFOLD_TRY(control.barrier());
  return part;
}

void Communicator::close(bool clean) noexcept {
  if (comm_ != nullptr) (void)(clean ? ncclCommDestroy(comm_) : ncclCommAbort(comm_));
  if (scratch_ != nullptr && clean) (void)cudaFree(scratch_);
  comm_ = nullptr;
  scratch_ = nullptr;
}

Result<void> Communicator::collective(Collective op, const void* from, void* to, std::size_t bytes,
                                      cudaStream_t stream) const {
  if (comm_ == nullptr) return {};
  // Parts of whole 16-byte words, so that they stay aligned.
  const std::size_t part = bytes / static_cast<std::size_t>(ranks_) / 16 * 16;
  const auto* source = static_cast<const char*>(from);
  auto* target = static_cast<char*>(to);
  switch (op) {
    case Collective::all_gather:
      NCCL_TRY(ncclAllGather(from, to, part / 2, ncclBfloat16, comm_, stream));
      return {};
    case Collective::reduce_scatter:
      NCCL_TRY(ncclReduceScatter(from, to, part / 2, ncclBfloat16, ncclSum, comm_, stream));
      return {};
    case Collective::all_reduce:
      NCCL_TRY(ncclAllReduce(from, to, bytes / 2, ncclBfloat16, ncclSum, comm_, stream));
      return {};
    case Collective::all_to_all:
      NCCL_TRY(ncclGroupStart());
      for (int peer = 0; peer < ranks_; ++peer) {
        const std::size_t at = part * static_cast<std::size_t>(peer);
        NCCL_TRY(ncclSend(source + at, part, ncclInt8, peer, comm_, stream));
        NCCL_TRY(ncclRecv(target + at, part, ncclInt8, peer, comm_, stream));
      }
      NCCL_TRY(ncclGroupEnd());
      return {};
    case Collective::send_recv:
      NCCL_TRY(ncclGroupStart());
      NCCL_TRY(ncclSend(from, bytes, ncclInt8, (rank_ + 1) % ranks_, comm_, stream));
      NCCL_TRY(ncclRecv(to, bytes, ncclInt8, (rank_ + ranks_ - 1) % ranks_, comm_, stream));
      NCCL_TRY(ncclGroupEnd());
      return {};
  }
  return {};
}

Result<void> Communicator::send_one_way(const void* from, void* to, std::size_t bytes,
                                        cudaStream_t stream) const {
  if (comm_ == nullptr || rank_ > 1) return {};
  if (rank_ == 0)
    NCCL_TRY(ncclSend(from, bytes, ncclInt8, 1, comm_, stream));
  else
    NCCL_TRY(ncclRecv(to, bytes, ncclInt8, 0, comm_, stream));
  return {};
}

Result<void> Communicator::all_to_all_v(const void* from, const std::vector<std::size_t>& send,
                                        void* to, const std::vector<std::size_t>& receive,
                                        std::size_t row_bytes, cudaStream_t stream) const {
  const auto* source = static_cast<const char*>(from);
  auto* target = static_cast<char*>(to);
  if (comm_ == nullptr) {
    CUDA_TRY(cudaMemcpyAsync(to, from, send[0] * row_bytes, cudaMemcpyDeviceToDevice, stream));
    return {};
  }
  NCCL_TRY(ncclGroupStart());
  for (int peer = 0; peer < ranks_; ++peer) {
    const auto p = static_cast<std::size_t>(peer);
    if (send[p] > 0) NCCL_TRY(ncclSend(source, send[p] * row_bytes, ncclInt8, peer, comm_, stream));
    if (receive[p] > 0)
      NCCL_TRY(ncclRecv(target, receive[p] * row_bytes, ncclInt8, peer, comm_, stream));
    source += send[p] * row_bytes;
    target += receive[p] * row_bytes;
  }
  NCCL_TRY(ncclGroupEnd());
  return {};
}

Result<void> Communicator::align(cudaStream_t stream) const {
  if (comm_ == nullptr) return {};
  NCCL_TRY(ncclAllReduce(scratch_, scratch_, 1, ncclFloat, ncclSum, comm_, stream));
  return {};
}

}  // namespace trifold::calibrate
