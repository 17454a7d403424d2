// SPDX-License-Identifier: Apache-2.0

// What block pricing calls allocates nothing.

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>

#include "hardware/fabric.h"
#include "hardware/profile.h"

namespace {
std::atomic<long> allocations{0};
}  // namespace

// These replace new and delete together; g++ sees free() alone when it inlines one of them.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace trifold::hardware {
namespace {

TEST(HotPath, LookupsAndSpansAllocateNothing) {
  Result<Cluster> cluster = load_cluster("gb200-nvl72", TRIFOLD_SOURCE_DIR);
  ASSERT_TRUE(cluster);
  Profile profile = assumed_profile(*cluster);
  Grid3& grid = profile.gemm[static_cast<std::size_t>(Dtype::bf16)][0];
  grid.axes = {{{1, 5, 9}, {2, 8}, {3, 9}}};
  grid.values.assign(12, -0.5);
  const long before = allocations;
  double sum = 0;
  for (int i = 1; i < 200; ++i) {
    sum += profile.gemm_utilisation(Dtype::fp8_block, GemmPass::wgrad, 10 * i, 4096, 7168).value;
    sum += profile.grouped_utilisation(Dtype::nvfp4, GemmPass::dgrad, 10 * i, 4096, 7168).value;
    sum += profile.attention_utilisation(true, 4096, 128, i).value;
    sum += profile.collective_seconds(Collective::all_reduce, i, 1e6 * i).value;
    sum += profile.constant("ep_scaleout_latency_factor");
    sum += span_of(*cluster, 0, i, 4).domains + span_of(*cluster, 0, 2, 2, i, 16).leaves;
  }
  EXPECT_EQ(allocations, before);
  EXPECT_TRUE(std::isfinite(sum));
  ::operator delete(::operator new(1));
  EXPECT_GT(allocations, before);  // the counter counts
}

}  // namespace
}  // namespace trifold::hardware
