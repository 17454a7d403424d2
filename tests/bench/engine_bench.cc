// SPDX-License-Identifier: Apache-2.0
// Task events a second of the event engine on one core. The graph looks like a training step: 16
// devices, six streams each, in-order chains with cross-stream dependencies. Issue 5 asks for at
// least 5 million a second.
#include <benchmark/benchmark.h>

#include "base/random.h"
#include "sim/engine.h"

namespace trifold::sim {
namespace {

Graph step_like_graph(int tasks, std::uint8_t compute, std::uint8_t comm) {
  Graph g;
  g.reserve(static_cast<std::size_t>(tasks), static_cast<std::size_t>(tasks) * 2);
  Random random(5);
  std::vector<Index> streams;
  for (int d = 0; d < 16; ++d) {
    const Index domain = g.add_domain();
    for (int s = 0; s < 6; ++s) streams.push_back(g.add_stream(domain));
  }
  std::vector<Index> last(streams.size(), -1);
  for (int i = 0; i < tasks; ++i) {
    const std::size_t device = static_cast<std::size_t>(i) % 16;
    const std::size_t s = device * 6 + (i / 16) % 3;  // three of its streams are busy
    const bool computes = s % 6 == 0;
    const Index task =
        g.add_task(streams[s], static_cast<Picoseconds>(1000000 + random.below(9000000)),
                   computes ? compute : comm);
    const std::size_t other = device * 6 + (i / 16 + 1) % 3;
    if (last[other] >= 0 && i % 2 == 0) g.add_dependency(last[other], task);
    last[s] = task;
  }
  return g;
}

void run(benchmark::State& state, bool contended) {
  LoadTable loads;
  std::uint8_t compute = 0, comm = 0;
  if (contended) {
    Load a, b;
    a.use = {1.0, 0.4};
    b.use = {0, 0.2, 1.0};
    b.hold = {20.0 / 132};
    compute = loads.add(a);
    comm = loads.add(b);
  }
  const Graph g = step_like_graph(static_cast<int>(state.range(0)), compute, comm);
  Engine engine;
  for (auto _ : state) benchmark::DoNotOptimize(engine.run(g, loads).makespan);
  state.SetItemsProcessed(state.iterations() * g.tasks());
}

void BM_EngineFree(benchmark::State& state) { run(state, false); }
void BM_EngineContended(benchmark::State& state) { run(state, true); }
BENCHMARK(BM_EngineFree)->Arg(1 << 16)->Arg(1 << 20)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_EngineContended)->Arg(1 << 16)->Arg(1 << 20)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace trifold::sim

BENCHMARK_MAIN();
