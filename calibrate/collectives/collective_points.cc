// SPDX-License-Identifier: Apache-2.0
// Collectives over sizes, rank counts, CTA limits, streams and graphs. Sizes are nccl-tests': the
// whole buffer. A sample is the slowest rank's; before it a small all-reduce aligns the ranks.
#include <cmath>
#include <cstring>

#include "calibrate/harness/session.h"

namespace trifold::calibrate {
namespace {

using hardware::Collective;
using hardware::Dtype;

struct Ask {
  Collective op = Collective::all_gather;
  int ranks = 2, world = 2, ctas = 0;
  std::size_t bytes = 0;
  bool graph = false, skewed = false, one_way = false;
};

// The communicator for a group size and CTA limit, made on first use (all ranks take part).
Result<Communicator*> communicator_of(Rank& rank, const Ask& ask) {
  if (ask.ctas == 0 && ask.ranks == ask.world) return &rank.world;
  std::map<int, Communicator>& cache = ask.ctas > 0 ? rank.limited : rank.subgroups;
  const int key = ask.ctas > 0 ? ask.ctas : ask.ranks;
  auto found = cache.find(key);
  if (found == cache.end()) {
    TRIFOLD_ASSIGN(made, rank.world.split(rank.control, ask.ranks, ask.ctas));
    found = cache.emplace(key, std::move(made)).first;
  }
  return &found->second;
}

struct Pair {
  void* from;
  void* to;
};

float from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float x = 0;
  std::memcpy(&x, &wide, sizeof(x));
  return x;
}

// Ranks fill with rank + 1 (bf16 bytes of one value): expected results are small integers.
Result<bool> right(Rank& rank, const Communicator& c, const Ask& ask, const Pair& pair) {
  const auto n = static_cast<std::size_t>(c.ranks());
  const std::size_t elements = std::max<std::size_t>(ask.bytes / 2, 8 * n);
  const float mine = static_cast<float>(c.rank() + 1);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &mine, 4);
  const auto half = static_cast<std::uint16_t>(bits >> 16);
  std::vector<std::uint16_t> host(elements, half);
  // On the collective's own stream: the default stream is not ordered with it.
  CUDA_TRY(cudaMemcpyAsync(pair.from, host.data(), elements * 2, cudaMemcpyHostToDevice,
                           rank.device.stream));
  CUDA_TRY(cudaMemsetAsync(pair.to, 0xff, elements * 2, rank.device.stream));
  CUDA_TRY(cudaStreamSynchronize(rank.device.stream));
  TRIFOLD_TRY(rank.control.barrier());
  TRIFOLD_TRY(c.collective(ask.op, pair.from, pair.to, elements * 2, rank.device.stream));
  TRIFOLD_TRY(wait_for(rank.device.stream, 60, [&] { return rank.control.aborted(); }));
  TRIFOLD_ASSIGN(got, to_host<std::uint16_t>(pair.to, elements));
  const float sum = static_cast<float>(n * (n + 1)) / 2;
  const std::size_t part = elements * 2 / n / 16 * 8;
  for (std::size_t i = 0; i < part * n; ++i) {
    float expected = 0;
    switch (ask.op) {
      case Collective::all_gather:
      case Collective::all_to_all:
        expected = static_cast<float>(i / part + 1);
        break;
      case Collective::all_reduce:
        expected = sum;
        break;
      case Collective::reduce_scatter:
        if (i >= part) return true;
        expected = sum;
        break;
      case Collective::send_recv:
        expected = static_cast<float>((static_cast<std::size_t>(c.rank()) + n - 1) % n + 1);
        break;
    }
    if (from_bf16(got[i]) != expected) return false;
  }
  return true;
}

// Uneven counts: peer p receives a share 1 + p of what each rank sends.
Result<void> skewed(const Communicator& c, const Ask& ask, const Pair& pair, cudaStream_t s) {
  const auto n = static_cast<std::size_t>(c.ranks());
  const std::size_t rows = ask.bytes / 16, shares = n * (n + 1) / 2;
  std::vector<std::size_t> send, receive;
  for (std::size_t p = 0; p < n; ++p) {
    send.push_back(rows * (p + 1) / shares);
    receive.push_back(rows * (static_cast<std::size_t>(c.rank()) + 1) / shares);
  }
  return c.all_to_all_v(pair.from, send, pair.to, receive, 16, s);
}

Result<void> issue(const Communicator& c, const Ask& ask, const Pair& pair, cudaStream_t s) {
  if (ask.skewed) return skewed(c, ask, pair, s);
  if (ask.one_way) return c.send_one_way(pair.from, pair.to, ask.bytes, s);
  return c.collective(ask.op, pair.from, pair.to, ask.bytes, s);
}

// Buffers, agreed by all ranks: a rank that lacks memory makes everybody skip.
Result<std::vector<Pair>> take_pairs(Rank& rank, const Ask& ask) {
  const std::size_t room = 2 * ask.bytes + 4096;  // the skewed receiver gets up to twice
  const int count = rotating_sets(rank.device, 2 * room);
  TRIFOLD_ASSIGN(agreed, rank.control.max(-count));  // the smallest count
  std::vector<Pair> pairs;
  Result<void> fits;
  for (int i = 0; i < std::max(1, static_cast<int>(-agreed)); ++i) {
    Result<void*> from = rank.device.arena.take(room), to = rank.device.arena.take(room);
    if (!from || !to) {
      fits = skip("out of device memory");
      break;
    }
    pairs.push_back({*from, *to});
  }
  TRIFOLD_ASSIGN(everybody, rank.control.all(fits.has_value()));
  if (!everybody) return skip("out of device memory on a rank");
  for (const Pair& pair : pairs)
    CUDA_TRY(kernels::fill_normal(pair.from, kernels::Element::bf16, room / 2, 1.0f,
                                  rank.device.seed(), rank.device.stream));
  CUDA_TRY(cudaStreamSynchronize(rank.device.stream));
  return pairs;
}

Result<std::vector<Point>> run_collective(Rank& rank, Point asked, const Ask& ask) {
  TRIFOLD_ASSIGN(c, communicator_of(rank, ask));
  TRIFOLD_ASSIGN(pairs, take_pairs(rank, ask));
  if (!ask.skewed && !ask.one_way) {
    Ask small = ask;
    small.bytes = std::min<std::size_t>(ask.bytes, std::size_t{1} << 20);
    TRIFOLD_ASSIGN(mine, right(rank, *c, small, pairs[0]));
    TRIFOLD_ASSIGN(everybody, rank.control.all(mine));
    if (!everybody) asked.flags.insert(PointFlag::bad);
  } else {
    asked.flags.insert(PointFlag::unchecked);
  }
  SampleRule rule;
  rule.budget_ms = 60;
  rule.warm_ms = 30;
  rule.max_inner = 40;
  rule.min_span_us = 200;
  Graph graph;
  if (ask.graph) {
    // Ten operations a graph, so that the graph's own launch is a tenth.
    TRIFOLD_TRY(issue(*c, ask, pairs[0], rank.device.stream));
    TRIFOLD_TRY(wait_for(rank.device.stream, 60, [&] { return rank.control.aborted(); }));
    Result<Graph> captured = Graph::capture(rank.device.stream, [&]() -> Result<void> {
      for (std::size_t i = 0; i < 10; ++i)
        TRIFOLD_TRY(issue(*c, ask, pairs[i % pairs.size()], rank.device.stream));
      return {};
    });
    TRIFOLD_ASSIGN(everybody, rank.control.all(captured.has_value()));
    if (!captured) return std::move(captured).error();
    if (!everybody) return skip("a rank could not capture the graph");
    graph = std::move(*captured);
    rule.max_inner = 4;
  }
  TRIFOLD_ASSIGN(m, measure(
                        rank.device, rule,
                        [&](int i, cudaStream_t s) -> Result<void> {
                          if (ask.graph) return graph.launch(s);
                          return issue(*c, ask, pairs[static_cast<std::size_t>(i) % pairs.size()],
                                       s);
                        },
                        rank.team()));
  if (ask.graph) m.us /= 10, m.us_p10 /= 10, m.us_p90 /= 10;
  return std::vector<Point>{answer(std::move(asked), m)};
}

void add(std::vector<Job>& jobs, const Ask& ask, int priority, bool anchor = false) {
  std::string op(token_name(hardware::kCollectives, ask.op));
  std::string variant = ask.graph ? "graph" : "stream";
  if (ask.skewed) variant += "_skewed";
  if (ask.one_way) variant += "_one_way";
  Job job;
  job.collective = true;
  job.priority = priority;
  job.anchor = anchor;
  job.question = question(PointFamily::collective, op, variant, Dtype::bf16,
                          {static_cast<double>(ask.ranks), static_cast<double>(ask.bytes),
                           static_cast<double>(ask.ctas), 0});
  job.run = [ask, asked = job.question](Rank& rank) { return run_collective(rank, asked, ask); };
  jobs.push_back(std::move(job));
}

}  // namespace

void add_collective_jobs(std::vector<Job>& jobs, int world, bool) {
  for (const auto& token : hardware::kCollectives) {
    Ask ask;
    ask.op = token.value;
    ask.world = world;
    for (int ranks = 2; ranks <= world; ranks *= 2) {
      if (world % ranks != 0) continue;
      ask.ranks = ranks;
      for (int shift = 10; shift <= 30; ++shift) {
        ask.bytes = std::size_t{1} << shift;
        const bool anchor = ask.op == Collective::all_gather && shift == 26 && ranks == world;
        add(jobs, ask, shift % 4 == 2 && ranks == world ? 0 : 1, anchor);
        // Halfway too: protocols change between powers of two.
        if (ranks != world || shift == 30) continue;
        ask.bytes = std::size_t{3} << (shift - 1);
        add(jobs, ask, 1);
      }
    }
    ask.ranks = world;
    for (int shift = 10; shift <= 28; shift += 3) {
      ask.bytes = std::size_t{1} << shift;
      ask.graph = true;
      add(jobs, ask, 1);
    }
    ask.graph = false;
    if (ask.op != Collective::send_recv)
      for (const int ctas : {4, 8, 16, 24, 32})
        for (const int shift : {20, 24, 28}) {
          ask.bytes = std::size_t{1} << shift;
          ask.ctas = ctas;
          add(jobs, ask, 1);
        }
  }
  Ask ask;
  ask.world = ask.ranks = world;
  for (int shift = 10; shift <= 30; ++shift) {
    ask.bytes = std::size_t{1} << shift;
    ask.op = Collective::all_to_all;
    ask.skewed = true;
    ask.one_way = false;
    if (shift % 3 == 0) add(jobs, ask, 1);
    ask.op = Collective::send_recv;
    ask.skewed = false;
    ask.one_way = true;
    add(jobs, ask, 1);
  }
}

}  // namespace trifold::calibrate
