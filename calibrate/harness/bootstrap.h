// SPDX-License-Identifier: Apache-2.0
#pragma once

// How ranks find each other. Either one process drives several GPUs, a thread each, or a launcher
// (torchrun --no-python, srun, mpirun) starts one process a GPU and its environment says who is
// who; then rank 0 listens and the others connect (the NCCL id and every agreement travel over that
// star). No CUDA here: four mpirun processes test it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "calibrate/calibrate.h"

namespace trifold::calibrate {

struct Launch {
  std::string launcher;  // torchrun, srun, mpirun, mpich; "" for a plain process
  int rank = 0, world = 1, local_rank = 0;
  std::string address = "127.0.0.1";  // of rank 0
  int port = 0;
};

using GetEnv = const char* (*)(const char*);

// Reads the usual variables. A contradiction (a rank outside the world, several nodes without an
// address) is an error that names the variable.
Result<Launch> read_launch(GetEnv get_env);
Result<Launch> read_launch();

// "node[03-06,9],gpu1" -> "node03".
std::string first_host(const std::string& slurm_nodelist);

// Threads of one process: a spinning barrier with shared slots.
class ThreadGroup {
 public:
  explicit ThreadGroup(int world) : world_(world), slots_(static_cast<std::size_t>(world)) {}
  bool barrier();  // false once somebody aborted
  void abort() { aborted_.store(true); }
  bool aborted() const { return aborted_.load(); }
  std::vector<std::vector<std::uint8_t>>& slots() { return slots_; }
  int world() const { return world_; }

 private:
  int world_;
  std::vector<std::vector<std::uint8_t>> slots_;
  std::atomic<int> arrived_{0};
  std::atomic<int> generation_{0};
  std::atomic<bool> aborted_{false};
};

// A rank's line to the others: agreements, not data.
class Control {
 public:
  Control() = default;                    // a world of one
  Control(ThreadGroup* group, int rank);  // a thread of this process
  static Result<Control> connect(const Launch& launch, double timeout_s = 120);
  Control(Control&& other) noexcept;
  Control& operator=(Control&& other) noexcept;
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  ~Control();

  int rank() const { return rank_; }
  int world() const { return world_; }
  bool aborted() const { return group_ != nullptr && group_->aborted(); }
  void abort();  // the others' next call fails

  Result<void> barrier();
  // Every rank's bytes, by rank. All contribute the same size.
  Result<std::vector<std::vector<std::uint8_t>>> all_gather(const void* data, std::size_t size);
  Result<double> max(double value);
  Result<bool> all(bool value);
  Result<void> broadcast(std::vector<std::uint8_t>& data);  // from rank 0; sizes may differ before

 private:
  int rank_ = 0, world_ = 1;
  ThreadGroup* group_ = nullptr;
  std::vector<int> sockets_;  // rank 0: one for each other rank; others: one to rank 0
};

// Connects, agrees on random bytes standing for the NCCL id, checks them, and says what it saw.
Result<Summary> rehearse_bootstrap();

std::string host_name();

}  // namespace trifold::calibrate
