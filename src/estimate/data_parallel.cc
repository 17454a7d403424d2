// SPDX-License-Identifier: Apache-2.0

// With overlap the reduction starts inside the last backward and the gather runs under the first
// forward: about 0.7 of either covers it, and a share `dp_overlap_exposed` shows all the same
// (buckets, stragglers). FSDP gathers each stage's parameters twice and reduces once per
// micro-batch. Known error: the exposed part is the weakest figure of the model (+-50 %).

#include "estimate/data_parallel.h"

#include <algorithm>

namespace trifold::estimate {

using cost::DataParallelTerms;
using job::Overlap;

namespace {

constexpr double kCover = 0.7;

double exposed(double transfer, double cover, bool overlapped, double share) {
  if (!overlapped) return transfer;
  return std::max(0.0, transfer - kCover * cover) + share * std::min(transfer, kCover * cover);
}

// Expert-parallel transfers that leave the NVLink domain have the NICs to themselves: nothing of
// data parallelism hides under them.
double cover(const job::Job& job, const Duration& work) {
  const bool nic = job.layout.ep * job.layout.etp > job.cluster.gpus_used_per_domain;
  return work.sum() - (nic ? work.exposed[static_cast<std::size_t>(Comm::ep)] : 0);
}

}  // namespace

double data_parallel_exposed(const job::Job& job, const DataParallelTerms& t, double forward,
                             double backward, const cost::Constants& constants) {
  const double share = constants.dp_overlap_exposed;
  const job::Techniques& techniques = job.techniques;
  if (!job.layout.fsdp)
    return exposed(t.reduce_s, backward, techniques.has(Overlap::grad_reduce), share) +
           exposed(t.gather_s, forward, techniques.has(Overlap::param_gather), share);
  const bool hidden = techniques.has(Overlap::fsdp) || techniques.has(Overlap::param_gather);
  return static_cast<double>(job.microbatches()) *
         (exposed(t.gather_s, forward, hidden, share) +
          exposed(t.gather_s + t.reduce_s, backward, hidden, share));
}

DataParallel data_parallel(const job::Job& job, const layout::Pipeline& pipeline, int stage,
                           const Duration& forward, const Duration& backward,
                           const cost::Pricer& pricer) {
  const DataParallelTerms terms =
      cost::data_parallel_terms(job, cost::stage_parameters(job, pipeline, stage), pricer);
  const double once = terms.reduce_s + terms.gather_s;
  DataParallel out;
  out.total_s =
      job.layout.fsdp ? static_cast<double>(job.microbatches()) * (once + terms.gather_s) : once;
  out.exposed_s = data_parallel_exposed(job, terms, cover(job, forward), cover(job, backward),
                                        pricer.constants());
  out.optimizer_s = terms.optimizer_s;
  out.host_s = terms.host_s;
  return out;
}

}  // namespace trifold::estimate
