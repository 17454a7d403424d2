// SPDX-License-Identifier: Apache-2.0
#pragma once

// A NCCL communicator and the collectives of training, by nccl-tests' sizes. No all-to-all call of
// NCCL is used: grouped sends and receives, which is what training stacks issue and what uneven
// counts need.

#include <cstdint>
#include <vector>

#include "calibrate/harness/bootstrap.h"
#include "calibrate/harness/device.h"
#include "hardware/profile.h"

namespace trifold::calibrate {

Result<std::vector<std::uint8_t>> new_nccl_id();

class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&& other) noexcept;
  ~Communicator() = default;  // close() says how

  // Collective over all ranks. A world of one has no communicator and every call is a no-op.
  Result<void> open(Device& device, Control& control, const std::vector<std::uint8_t>& id);
  // Groups of `size` consecutive ranks, with at most `max_ctas` CTAs (0: the library's choice).
  Result<Communicator> split(Control& control, int size, int max_ctas) const;
  void close(bool clean) noexcept;

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  bool ready() const { return comm_ != nullptr; }

  // nccl-tests' `bytes`: all_gather's output, reduce_scatter's input, the whole buffer otherwise.
  // Buffers hold `bytes` each.
  Result<void> collective(hardware::Collective op, const void* from, void* to, std::size_t bytes,
                          cudaStream_t stream) const;
  // One way: rank 0 to rank 1 alone.
  Result<void> send_one_way(const void* from, void* to, std::size_t bytes, cudaStream_t s) const;
  // Row counts (of `row_bytes`) to send to and receive from each rank, packed in rank order.
  Result<void> all_to_all_v(const void* from, const std::vector<std::size_t>& send, void* to,
                            const std::vector<std::size_t>& receive, std::size_t row_bytes,
                            cudaStream_t stream) const;
  Result<void> align(cudaStream_t stream) const;  // a tiny all-reduce

 private:
  ncclComm_t comm_ = nullptr;
  int rank_ = 0, ranks_ = 1;
  float* scratch_ = nullptr;
};

}  // namespace trifold::calibrate
