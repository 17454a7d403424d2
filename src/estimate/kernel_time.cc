// SPDX-License-Identifier: Apache-2.0
#include "estimate/kernel_time.h"

namespace trifold::estimate {

namespace {

Work work_of(layer::Family family) {
  switch (family) {
    case layer::Family::gemm:
    case layer::Family::grouped_gemm:
      return Work::gemm;
    case layer::Family::attention:
      return Work::attention;
    case layer::Family::memory_bound:
      return Work::memory_bound;
    case layer::Family::quantize:
      return Work::quantize;
    case layer::Family::tp_comm:
    case layer::Family::cp_comm:
    case layer::Family::ep_comm:
      return Work::communication;
  }
  return Work::memory_bound;
}

void add(const cost::BlockCost& cost, layer::Pass pass, double times,
         std::array<double, kWorks>& out) {
  for (int f = 0; f < layer::kFamilies; ++f) {
    const auto family = static_cast<layer::Family>(f);
    out[static_cast<std::size_t>(work_of(family))] += times * cost.family(pass, family);
  }
  const double routing = times * cost.routing[static_cast<std::size_t>(pass)];
  out[static_cast<std::size_t>(Work::routing)] += routing;
  out[static_cast<std::size_t>(Work::memory_bound)] -= routing;
}

}  // namespace

KernelTime kernel_time(const job::Job& job, const StageContent& content, BlockTimes& blocks) {
  KernelTime time;
  for_each_block(content, [&](layer::BlockRole role, model::LayerKind kind, int count) {
    const cost::BlockCost& cost = *blocks.get(role, kind).cost;
    const double times = count * static_cast<double>(job.microbatches());
    add(cost, layer::Pass::forward, times, time.forward);
    for (layer::Pass pass : {layer::Pass::dgrad, layer::Pass::wgrad, layer::Pass::recompute})
      add(cost, pass, times, time.backward);
  });
  return time;
}

}  // namespace trifold::estimate
