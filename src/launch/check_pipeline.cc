// SPDX-License-Identifier: Apache-2.0
// Stages, chunks, layout strings, the interleaved schedule, MTP.

#include <algorithm>

#include <fmt/format.h>

#include "launch/findings.h"
#include "layout/pipeline.h"

namespace trifold::launch {
namespace {

std::int64_t accounted(const Settings& s) {
  return (s.has("--account-for-embedding-in-pipeline-split") ? 1 : 0) +
         (s.has("--account-for-loss-in-pipeline-split") ? 1 : 0);
}
bool uneven(const Settings& s) {
  return s.has("--decoder-first-pipeline-num-layers") ||
         s.has("--decoder-last-pipeline-num-layers");
}

// LAY-03 and LAY-05: what each character may stand beside.
void check_characters(const Settings& s, const std::vector<std::string>& stages, Findings& out) {
  std::string flat;
  for (const std::string& stage : stages) flat += stage;
  const auto count = [&](char c) { return std::count(flat.begin(), flat.end(), c); };
  if (flat.empty() || flat.front() != 'E' || flat.back() != 'L' || count('E') != 1 ||
      count('L') != 1)
    out.reject("LAY-03");
  if (count('t') != s.layers)
    out.reject("LAY-04", fmt::format("{} in the layout, {} layers", count('t'), s.layers));
  if (count('m') != s.mtp)
    out.reject("LAY-05", fmt::format("{} in the layout, {} MTP layers", count('m'), s.mtp));
  const std::size_t first = flat.find('m');
  bool misplaced = first != std::string::npos && flat.find('t', first) != std::string::npos;
  const std::int64_t chunks = static_cast<std::int64_t>(stages.size()) / s.pp;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const auto here = std::count(stages[i].begin(), stages[i].end(), 'm');
    if (here == 0) continue;
    misplaced = misplaced || here != s.mtp || static_cast<std::int64_t>(i) / s.pp != chunks - 1;
  }
  if (misplaced && count('m') == s.mtp) out.reject("LAY-05", "misplaced m");
}

void check_layout(const Settings& s, Findings& out) {
  if (uneven(s) || accounted(s) > 0) out.reject("LAY-06");
  const Result<std::vector<std::string>> stages =
      layout::parse_pipeline_layout(s.text("--pipeline-model-parallel-layout"));
  if (!stages) {
    out.reject("LAY-02", stages.error().message);
    return;
  }
  if (static_cast<std::int64_t>(stages->size()) % s.pp != 0)
    out.reject("LAY-01", fmt::format("{} stages, pp {}", stages->size(), s.pp));
  check_characters(s, *stages, out);
}

void check_uneven(const Settings& s, Findings& out) {
  if (accounted(s) > 0) out.reject("PP-09");
  if (s.has("--num-layers-per-virtual-pipeline-stage")) out.reject("PP-12");
  const std::int64_t first = s.integer("--decoder-first-pipeline-num-layers");
  const std::int64_t last = s.integer("--decoder-last-pipeline-num-layers");
  const bool has_first = s.has("--decoder-first-pipeline-num-layers");
  const bool has_last = s.has("--decoder-last-pipeline-num-layers");
  const std::int64_t middle = s.layers - first - last;
  const std::int64_t stages = s.pp - (has_first ? 1 : 0) - (has_last ? 1 : 0);
  if ((has_first && first <= 0) || (has_last && last <= 0) || (middle != 0) != (stages != 0) ||
      middle < 0 || (stages > 0 && middle % stages != 0))
    out.reject("PP-10", fmt::format("{} middle layers, {} middle stages", middle, stages));
  if (s.vpp > 0 &&
      (first % s.vpp != 0 || last % s.vpp != 0 || (stages > 0 && middle / stages % s.vpp != 0)))
    out.reject("PP-11", fmt::format("vpp {}", s.vpp));
}

void check_even(const Settings& s, Findings& out) {
  const std::int64_t counted = s.layers + accounted(s);
  if (counted % s.pp != 0) {
    out.reject("PP-01", fmt::format("{} layers, pp {}", counted, s.pp));
    return;
  }
  const std::int64_t per_stage = counted / s.pp;
  const std::int64_t per_chunk = s.integer("--num-layers-per-virtual-pipeline-stage");
  if (per_chunk > 0 && per_stage % per_chunk != 0)
    out.reject("PP-03", fmt::format("{} layers a stage, {} a virtual stage", per_stage, per_chunk));
  if (s.vpp > 0 && per_stage % s.vpp != 0)
    out.reject("PP-04", fmt::format("{} layers a stage, vpp {}", per_stage, s.vpp));
  if (accounted(s) > 0 && per_stage / std::max<std::int64_t>(1, s.vpp) < 1) out.reject("PP-13");
}

void check_interleaving(const Settings& s, Findings& out) {
  if (s.vpp == 0) return;
  const bool overlapped = !s.has("--no-overlap-p2p-communication");
  if (s.pp < (overlapped ? 2 : 3)) {
    out.reject("PP-05", fmt::format("pp {}, vpp {}", s.pp, s.vpp));
    return;
  }
  const std::int64_t group = s.integer("--microbatch-group-size-per-virtual-pipeline-stage", s.pp);
  const std::int64_t m = s.microbatches;
  if (s.gpus <= 0 || m <= 0) return;
  const std::string detail = fmt::format("group {}, pp {}, {} micro-batches", group, s.pp, m);
  const std::string fix =
      fmt::format("--global-batch-size {}", (m + s.pp - 1) / s.pp * s.pp * s.micro_batch * s.dp);
  if (group < s.pp || group > m)
    out.reject("PP-07", detail, fix);
  else if (m % group != 0 && m % group < s.pp)
    out.reject("PP-08", detail, fix);
}

void check_mtp(const Settings& s, Findings& out) {
  if (s.mtp == 0) return;
  const std::string position =
      s.has("--use-rotary-position-embeddings") ? "rope" : s.text("--position-embedding-type");
  if (position != "rope" && position != "none") out.reject("MTP-01", position);
  if (s.full_recompute && s.text("--recompute-method") == "uniform" &&
      s.integer("--recompute-num-layers", 1) != 1)
    out.reject("MTP-02");
}

}  // namespace

void check_pipeline(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  const bool cut = s.has("--pipeline-model-parallel-layout");
  const int forms = (s.has("--num-layers-per-virtual-pipeline-stage") ? 1 : 0) +
                    (s.has("--num-virtual-stages-per-pipeline-rank") ? 1 : 0) + (cut ? 1 : 0);
  if (forms > 1) out.reject("PP-02");
  if (cut)
    check_layout(s, out);
  else if (uneven(s))
    check_uneven(s, out);
  else if (!s.has("--hybrid-layer-pattern"))
    check_even(s, out);
  check_interleaving(s, out);
  check_mtp(s, out);
  if (s.has("--defer-embedding-wgrad-compute") &&
      (s.pp == 1 || s.has("--no-gradient-accumulation-fusion")))
    out.reject("PP-15");
  if (s.has("--overlap-p2p-communication-warmup-flush") &&
      (s.vpp == 0 || s.has("--no-overlap-p2p-communication")))
    out.reject("PP-16");
}

}  // namespace trifold::launch
