// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <cstdio>

#include "deepseek.h"

// One memory evaluation of DeepSeek-V3, PP16 VPP4 EP64: under 2 us after warm-up (issue 3).

namespace {

void evaluate(benchmark::State& state) {
  const trifold::job::Job job = trifold::memory_bench::deepseek_v3();
  const auto pipeline = trifold::layout::build_pipeline(job.model, job.layout).value();
  trifold::memory::Memory memory;
  for (auto _ : state) {
    trifold::memory::evaluate(job, pipeline, memory);
    benchmark::DoNotOptimize(memory.peak);
  }
}
BENCHMARK(evaluate);

}  // namespace

BENCHMARK_MAIN();
