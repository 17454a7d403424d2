// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "calibrate/calibrate.h"
#include "calibrate/harness/bootstrap.h"
#include "calibrate/harness/session.h"

namespace trifold::calibrate {
namespace {

Result<Summary> run_mode(Rank& rank) {
  switch (rank.options->mode) {
    case Mode::points:
      return run_points(rank);
    case Mode::layer:
      return run_layer_test(rank);
    case Mode::lab:
      return run_lab(rank);
    case Mode::check_kernels:
      return check_kernels(rank);
    case Mode::bootstrap:
      return rehearse_bootstrap();
  }
  return Summary{};
}

void release(Rank& rank, bool clean) noexcept {
  (void)cudaSetDevice(rank.device.index);
  for (auto& [size, communicator] : rank.subgroups) communicator.close(clean);
  for (auto& [ctas, communicator] : rank.limited) communicator.close(clean);
  rank.world.close(clean);
  if (clean) close_device(rank.device);  // after a fault the driver cleans up at exit
}

Result<Summary> run_rank(Rank& rank, int device_index, const std::vector<std::uint8_t>& id) {
  set_fault_place(host_name() + ", rank " + std::to_string(rank.control.rank()));
  const auto start = std::chrono::steady_clock::now();
  const bool small = rank.options->mode == Mode::lab || rank.options->mode == Mode::check_kernels;
  const double share = small ? 0.3 : 0.85;
  Result<void> opened = open_device(rank.device, device_index, share);
  rank.device.next_seed =
      rank.options->seed * 1000003 + static_cast<std::uint64_t>(rank.control.rank()) * 7919;
  TRIFOLD_ASSIGN(all_open, rank.control.all(opened.has_value()));
  if (!opened) return std::move(opened).error();
  if (!all_open) return Error{ErrorCode::environment, "another rank has no GPU", "", ""};
  TRIFOLD_TRY(rank.world.open(rank.device, rank.control, id));
  Result<Summary> summary = run_mode(rank);
  if (summary)
    summary->seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return summary;
}

// Threads of this process, one a GPU.
Result<Summary> run_threads(const Options& options, int gpus) {
  ThreadGroup group(gpus);
  std::vector<Rank> ranks(static_cast<std::size_t>(gpus));
  std::vector<Rank*> peers;
  for (Rank& rank : ranks) peers.push_back(&rank);
  TRIFOLD_ASSIGN(id, new_nccl_id());
  std::vector<Result<Summary>> results(ranks.size(), Result<Summary>(Summary{}));
  std::vector<std::thread> threads;
  for (int r = 0; r < gpus; ++r)
    threads.emplace_back([&, r] {
      const auto i = static_cast<std::size_t>(r);
      Rank& rank = ranks[i];
      rank.control = Control(&group, r);
      rank.options = &options;
      rank.peers = peers;
      results[i] = run_rank(rank, r, id);
      if (!results[i]) group.abort();
    });
  for (std::thread& thread : threads) thread.join();
  const bool clean =
      std::all_of(results.begin(), results.end(), [](const auto& r) { return r.has_value(); });
  for (Rank& rank : ranks) release(rank, clean);
  // The first fault, not the "another rank failed" that it caused.
  for (auto& result : results)
    if (!result && result.error().message != "another rank failed") return std::move(result);
  for (auto& result : results)
    if (!result) return std::move(result);
  return std::move(results[0]);
}

Result<Summary> run_process(const Options& options, const Launch& launch, int gpus) {
  if (launch.local_rank >= gpus)
    return Error{ErrorCode::environment,
                 "local rank " + std::to_string(launch.local_rank) +
                     " has no GPU: " + std::to_string(gpus) + " visible",
                 host_name(), "start one rank a GPU"};
  TRIFOLD_ASSIGN(control, Control::connect(launch));
  std::vector<std::uint8_t> id;
  if (launch.rank == 0) {
    TRIFOLD_ASSIGN(fresh, new_nccl_id());
    id = fresh;
  }
  TRIFOLD_TRY(control.broadcast(id));
  Rank rank;
  rank.control = std::move(control);
  rank.options = &options;
  rank.one_process = false;
  rank.peers = {&rank};
  // A scheduler that shows each process its own GPU alone gives local index 0.
  Result<Summary> result = run_rank(rank, launch.local_rank, id);
  if (!result) rank.control.abort();
  release(rank, result.has_value());
  if (result) {
    result->rank = launch.rank;
    result->ranks = launch.world;
  }
  return result;
}

}  // namespace

bool built_with_cuda() { return true; }

Result<Summary> run(const Options& options) {
  if (options.mode == Mode::bootstrap) return rehearse_bootstrap();
  // NVLink multicast shares the fabric manager with every job of the host: leave it off.
  ::setenv("NCCL_NVLS_ENABLE", "0", 1);
  // Two micro-batches use ten streams and NCCL its own; the driver's default of eight queues would
  // put some of them behind each other.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  TRIFOLD_ASSIGN(launch, read_launch());
  TRIFOLD_ASSIGN(gpus, visible_gpus());
  if (launch.world > 1) {
    // With one visible GPU a process (CUDA_VISIBLE_DEVICES set by the launcher) the index is 0.
    Launch mapped = launch;
    if (gpus == 1) mapped.local_rank = 0;
    return run_process(options, mapped, gpus);
  }
  int wanted = options.gpus > 0 ? options.gpus : gpus;
  if (options.mode == Mode::lab || options.mode == Mode::check_kernels) wanted = 1;
  if (wanted > gpus)
    return Error{ErrorCode::environment,
                 std::to_string(wanted) + " GPUs asked for, " + std::to_string(gpus) + " visible",
                 host_name(), ""};
  Result<Summary> result = run_threads(options, wanted);
  if (result) result->ranks = wanted;
  return result;
}

}  // namespace trifold::calibrate
