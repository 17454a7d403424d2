// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>

#include "deepseek.h"

// Speed and silence of the hot path. The bound is on the fastest of many batches, so that a busy
// machine does not fail it.

namespace {
std::size_t allocations = 0;
}

// These replace new and delete together; g++ sees free() alone when it inlines one of them.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

void* operator new(std::size_t size) {
  ++allocations;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace trifold::memory_bench {
namespace {

TEST(MemorySpeed, UnderTwoMicrosecondsWithoutAllocating) {
  const job::Job job = deepseek_v3();
  const layout::Pipeline pipeline = layout::build_pipeline(job.model, job.layout).value();
  memory::Memory memory;
  memory::evaluate(job, pipeline, memory);
  ASSERT_EQ(memory.stages.size(), 16u);
  const std::size_t before = allocations;
  double best = 1;
  for (int batch = 0; batch < 400 || (batch < 20000 && best > 2e-6); ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 50; ++i) memory::evaluate(job, pipeline, memory);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count() / 50);
  }
  EXPECT_EQ(allocations, before);
  RecordProperty("nanoseconds", static_cast<int>(best * 1e9));
  std::printf("memory::evaluate, DeepSeek-V3 PP16 VPP4: %.0f ns\n", best * 1e9);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(best, 2e-6);
#endif
}

}  // namespace
}  // namespace trifold::memory_bench
