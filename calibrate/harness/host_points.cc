// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>

#include "calibrate/harness/grouped.h"
#include "calibrate/harness/session.h"

namespace trifold::calibrate {
namespace {

using hardware::Dtype;
using Clock = std::chrono::steady_clock;

double since_us(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// Samples of host or device microseconds that a function returns.
Result<Measurement> sampled(const std::function<Result<double>()>& one, int count = 15) {
  std::vector<double> samples;
  for (int i = 0; i < count + 2; ++i) {
    TRIFOLD_ASSIGN(us, one());
    if (i >= 2) samples.push_back(us);
  }
  Measurement m;
  m.us = percentile(samples, 0.5);
  m.us_p10 = percentile(samples, 0.1);
  m.us_p90 = percentile(samples, 0.9);
  m.samples = count;
  return m;
}

void add(std::vector<Job>& jobs, PointFamily family, const std::string& op,
         const std::string& variant, double size, int priority,
         std::function<Result<Measurement>(Rank&)> run) {
  Job job;
  job.question = question(family, op, variant, Dtype::bf16, {size, 0, 0, 0});
  job.priority = priority;
  job.run = [asked = job.question, run](Rank& rank) -> Result<std::vector<Point>> {
    TRIFOLD_ASSIGN(m, run(rank));
    return std::vector<Point>{answer(asked, m)};
  };
  jobs.push_back(std::move(job));
}

Result<Measurement> enqueue(Rank& rank) {
  Device& d = rank.device;
  return sampled([&]() -> Result<double> {
    CUDA_TRY(kernels::spin(3000, d.stream));
    const auto start = Clock::now();
    for (int i = 0; i < 200; ++i) CUDA_TRY(kernels::nothing(d.stream));
    const double us = since_us(start) / 200;
    CUDA_TRY(cudaStreamSynchronize(d.stream));
    return us;
  });
}

// Device time between the starts of dependent empty kernels, the host running ahead.
Result<Measurement> kernel_gap(Rank& rank) {
  SampleRule rule;
  rule.max_inner = 200;
  rule.min_span_us = 400;
  return measure(rank.device, rule, [](int, cudaStream_t s) -> Result<void> {
    CUDA_TRY(kernels::nothing(s));
    return {};
  });
}

Result<Measurement> round_trip(Rank& rank) {
  Device& d = rank.device;
  return sampled([&]() -> Result<double> {
    const auto start = Clock::now();
    for (int i = 0; i < 50; ++i) {
      CUDA_TRY(kernels::nothing(d.stream));
      CUDA_TRY(cudaStreamSynchronize(d.stream));
    }
    return since_us(start) / 50;
  });
}

// A kernel on one stream that waits for an event of the other, to and fro; per hop, kernel
// included.
Result<Measurement> stream_hop(Rank& rank) {
  Device& d = rank.device;
  SampleRule rule;
  rule.max_inner = 40;
  rule.min_span_us = 400;
  TRIFOLD_ASSIGN(m, measure(d, rule, [&](int, cudaStream_t s) -> Result<void> {
                   CUDA_TRY(kernels::nothing(s));
                   CUDA_TRY(cudaEventRecord(d.fork, s));
                   CUDA_TRY(cudaStreamWaitEvent(d.second, d.fork, 0));
                   CUDA_TRY(kernels::nothing(d.second));
                   CUDA_TRY(cudaEventRecord(d.joins[0], d.second));
                   CUDA_TRY(cudaStreamWaitEvent(s, d.joins[0], 0));
                   return {};
                 }));
  m.us /= 2, m.us_p10 /= 2, m.us_p90 /= 2;
  return m;
}

Result<Graph> empty_graph(Device& d, int nodes) {
  return Graph::capture(d.stream, [&]() -> Result<void> {
    for (int i = 0; i < nodes; ++i) CUDA_TRY(kernels::nothing(d.stream));
    return {};
  });
}

// Device time of a graph of empty kernels, per node.
Result<Measurement> graph_node(Rank& rank, int nodes) {
  TRIFOLD_ASSIGN(graph, empty_graph(rank.device, nodes));
  SampleRule rule;
  rule.max_inner = 20;
  TRIFOLD_ASSIGN(m,
                 measure(rank.device, rule, [&](int, cudaStream_t s) { return graph.launch(s); }));
  m.us /= nodes, m.us_p10 /= nodes, m.us_p90 /= nodes;
  return m;
}

Result<Measurement> graph_launch(Rank& rank, int nodes) {
  Device& d = rank.device;
  TRIFOLD_ASSIGN(graph, empty_graph(d, nodes));
  return sampled([&]() -> Result<double> {
    CUDA_TRY(kernels::spin(2000, d.stream));
    const auto start = Clock::now();
    for (int i = 0; i < 10; ++i) TRIFOLD_TRY(graph.launch(d.stream));
    const double us = since_us(start) / 10;
    CUDA_TRY(cudaStreamSynchronize(d.stream));
    return us;
  });
}

// Host time to enqueue the experts' GEMMs: one grouped call against a loop, per GEMM.
Result<Measurement> enqueue_experts(Rank& rank, Backend backend, int experts) {
  Device& d = rank.device;
  GroupedShape shape;
  shape.backend = backend;
  shape.rows = balanced_rows(16 * experts, experts);
  shape.n = 512;
  shape.k = 512;
  TRIFOLD_ASSIGN(buffers, take_grouped(d, shape));
  TRIFOLD_TRY(fill_grouped(d, shape, buffers));
  TRIFOLD_ASSIGN(gemm, GroupedGemm::make(d, shape, buffers));
  return sampled([&]() -> Result<double> {
    CUDA_TRY(kernels::spin(3000, d.stream));
    const auto start = Clock::now();
    TRIFOLD_TRY(gemm.run(d, buffers, d.stream));
    const double us = since_us(start) / experts;
    CUDA_TRY(cudaStreamSynchronize(d.stream));
    return us;
  });
}

struct Pinned {
  void* p = nullptr;
  ~Pinned() {
    if (p != nullptr) (void)cudaFreeHost(p);
  }
};

Result<Measurement> host_copy(Rank& rank, const std::string& op, std::size_t bytes) {
  Device& d = rank.device;
  Pinned up, down;
  CUDA_TRY(cudaMallocHost(&up.p, bytes));
  CUDA_TRY(cudaMallocHost(&down.p, bytes));
  TRIFOLD_ASSIGN(in, d.arena.take(bytes));
  TRIFOLD_ASSIGN(out, d.arena.take(bytes));
  CUDA_TRY(kernels::fill_normal(out, kernels::Element::bf16, bytes / 2, 1, d.seed(), d.stream));
  SampleRule rule;
  rule.budget_ms = 60;
  rule.max_samples = 15;
  rule.warm_ms = 30;
  return measure(d, rule, [&](int, cudaStream_t s) -> Result<void> {
    if (op == "bidirectional") {
      CUDA_TRY(cudaEventRecord(d.fork, s));
      CUDA_TRY(cudaStreamWaitEvent(d.second, d.fork, 0));
      CUDA_TRY(cudaMemcpyAsync(down.p, out, bytes, cudaMemcpyDeviceToHost, d.second));
      CUDA_TRY(cudaEventRecord(d.joins[0], d.second));
    }
    if (op == "d2h")
      CUDA_TRY(cudaMemcpyAsync(down.p, out, bytes, cudaMemcpyDeviceToHost, s));
    else
      CUDA_TRY(cudaMemcpyAsync(in, up.p, bytes, cudaMemcpyHostToDevice, s));
    if (op == "bidirectional") CUDA_TRY(cudaStreamWaitEvent(s, d.joins[0], 0));
    return {};
  });
}

// From this GPU's copy engine into a peer's memory (a peer of this process).
Result<Measurement> peer_copy(Rank& rank, std::size_t bytes) {
  Device& d = rank.device;
  Device& peer = rank.peers[1]->device;
  int possible = 0;
  CUDA_TRY(cudaDeviceCanAccessPeer(&possible, d.index, peer.index));
  if (possible == 0) return skip("no peer access between the GPUs");
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(peer.index, 0);
  if (enabled == cudaErrorPeerAccessAlreadyEnabled)
    (void)cudaGetLastError();
  else
    CUDA_TRY(enabled);
  TRIFOLD_ASSIGN(from, d.arena.take(bytes));
  CUDA_TRY(kernels::fill_normal(from, kernels::Element::bf16, bytes / 2, 1, d.seed(), d.stream));
  // Rank 1 may be between jobs, with its arena in use by nobody: its own allocation is safest.
  void* to = nullptr;
  CUDA_TRY(cudaSetDevice(peer.index));
  const cudaError_t allocated = cudaMalloc(&to, bytes);
  CUDA_TRY(cudaSetDevice(d.index));
  if (allocated == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return skip("out of device memory on the peer");
  }
  CUDA_TRY(allocated);
  Result<Measurement> m = measure(d, {}, [&](int, cudaStream_t s) -> Result<void> {
    CUDA_TRY(cudaMemcpyPeerAsync(to, peer.index, from, d.index, bytes, s));
    return {};
  });
  (void)cudaFree(to);
  return m;
}

void add_links(std::vector<Job>& jobs, int local_gpus) {
  for (const char* op : {"h2d", "d2h", "bidirectional"})
    for (int shift = 12; shift <= 28; shift += 4) {
      const std::size_t bytes = std::size_t{1} << shift;
      const bool both = std::string(op) == "bidirectional";
      if (both && shift < 20) continue;
      add(jobs, PointFamily::host_link, op, "pinned",
          (both ? 2.0 : 1.0) * static_cast<double>(bytes), shift >= 20 && shift < 28 ? 0 : 1,
          [op = std::string(op), bytes](Rank& rank) { return host_copy(rank, op, bytes); });
    }
  if (local_gpus < 2) return;
  for (int shift = 12; shift <= 30; shift += 3) {
    const std::size_t bytes = std::size_t{1} << shift;
    Job job;
    job.question = question(PointFamily::collective, "send_recv", "copy_engine", Dtype::bf16,
                            {2, static_cast<double>(bytes), 0, 0});
    job.priority = 1;
    job.run = [bytes, asked = job.question](Rank& rank) -> Result<std::vector<Point>> {
      TRIFOLD_ASSIGN(m, peer_copy(rank, bytes));
      return std::vector<Point>{answer(asked, m)};
    };
    jobs.push_back(std::move(job));
  }
}

}  // namespace

void add_host_jobs(std::vector<Job>& jobs, int local_gpus) {
  add(jobs, PointFamily::host, "enqueue", "", 1, 0, enqueue);
  add(jobs, PointFamily::host, "kernel_gap", "", 1, 0, kernel_gap);
  add(jobs, PointFamily::host, "round_trip", "", 1, 0, round_trip);
  add(jobs, PointFamily::host, "stream_hop", "", 1, 0, stream_hop);
  for (const int nodes : {1, 10, 100, 1000}) {
    add(jobs, PointFamily::host, "graph_node", "", nodes, 0,
        [nodes](Rank& rank) { return graph_node(rank, nodes); });
    add(jobs, PointFamily::host, "graph_launch", "", nodes, 0,
        [nodes](Rank& rank) { return graph_launch(rank, nodes); });
  }
  for (const int experts : {8, 64})
    for (const Backend backend : {Backend::loop, Backend::streams, Backend::grouped})
      add(jobs, PointFamily::host, "enqueue", std::string("experts_") + backend_name(backend),
          experts, 1,
          [backend, experts](Rank& rank) { return enqueue_experts(rank, backend, experts); });
  add_links(jobs, local_gpus);
}

}  // namespace trifold::calibrate
