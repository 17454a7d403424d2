// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "calibrate/fit/csv.h"
#include "calibrate/fit/family_fits.h"
#include "calibrate/fit/solve.h"
#include "calibrate/fit/traffic.h"

// Expert dispatchers.
//
//   t = max(up / (e_up NVLink), (up / b + rows c) / SMs, out / (e_out NIC))
//       + l + [crosses domains] l_out
//
// up, out: calibrate/fit/traffic.h; rows: copies of tokens that `up` is. c shows where FP8 rows,
// half as long, take more than half of the time of BF16 ones (B200, 16 SMs: 0.73). DeepEP has it;
// HybridEP and NCCL predict left-out rows no better with it. Rows, each with its own routing:
//   aiconfigurator DeepEP normal mode: one domain (0.5.12), two and four nodes (H100, 0.5.6; its
//   EP64
//     rows carry milliseconds of notify and are left out). Dispatch FP8 (7168 B + 56 scales a
//     token), combine BF16. Its internode test limits routing to 4 nodes.
//   DeepEP V1 README and arXiv:2505.09343, H800: GB/s that count the local node once; 4 of the
//   nodes. HybridEP README, kernel only, and its DeepEP rows: "algorithm bandwidth" = bytes to all
//   distinct
//     ranks (or nodes), local one included, over time; uniform routing, 8 experts a rank.
//   arXiv:2603.07685 Table 7 (4096 tokens, 7168, top 8 of 256, BF16). Across nodes only
//   DeepSeek-V3's
//     limit of 4 in 8 groups keeps the NIC below its rate; inside a domain neither reading is ruled
//     out (H100 EP8: 0.95 of NVLink without it, 0.64 with it), so the geometric mean of both.
// NCCL: Table 7 where the GPU is in it, else its own all-to-all and all-gather curves at 8 ranks
// and the largest size; 13.6 GB/s a CTA (data/h200x2/nccl.csv maxctas, 128 MiB), or what 24 CTAs
// must carry.
//
// Known error: 10 % in a domain, 20 % across nodes (one fleet, one NIC).

namespace trifold::fit {

using hardware::Basis;
using hardware::Collective;
using hardware::DispatcherRate;

namespace {

constexpr double kFp8Token = 7168 + 56 * 4, kBf16Token = 7168 * 2;
constexpr double kNcclPerCta = 13.6e9;
constexpr double kRowCeiling = 1e-6;  // a row of 14 KB at an SM's rate

struct Row {
  double up, rows, out, sms, seconds, weight;
};

Row row_of(const Traffic& t, double token_bytes, double sms, double seconds, double weight) {
  return {t.scaleup, t.scaleup / token_bytes, t.scaleout, sms, seconds, weight};
}

double predict(const DispatcherRate& r, const GpuFacts& gpu, const Row& row) {
  const double inside =
      std::max(row.up / (r.scaleup_efficiency * gpu.scaleup),
               (row.up / r.bytes_per_s_per_sm + row.rows * r.sm_s_per_row) / row.sms);
  const double outside = row.out / (r.scaleout_efficiency * gpu.scaleout);
  return std::max(inside, outside) + r.latency_s + (row.out > 0 ? r.latency_scaleout_s : 0);
}

DispatcherRate unpack(const std::vector<double>& p) {
  DispatcherRate r;
  r.scaleup_efficiency = p[0];
  r.scaleout_efficiency = p[1];
  r.bytes_per_s_per_sm = std::exp(p[2]);
  r.latency_s = p[3];
  r.latency_scaleout_s = p[4];
  r.sm_s_per_row = p[5];
  return r;
}

// Rows decide; what they cannot see stays at `start`.
// `per_row`: rows cost by themselves too.
DispatcherRate search(const GpuFacts& gpu, const std::vector<Row>& rows,
                      const DispatcherRate& start, bool per_row) {
  const auto loss = [&](const std::vector<double>& p) {
    double sum = 0;
    for (const Row& row : rows)
      sum += row.weight * huber(std::log(predict(unpack(p), gpu, row) / row.seconds), 0.1);
    // A weak pull towards the start, so that unseen parameters do not drift.
    const double from[6] = {start.scaleup_efficiency,           start.scaleout_efficiency,
                            std::log(start.bytes_per_s_per_sm), start.latency_s * 1e4,
                            start.latency_scaleout_s * 1e3,     start.sm_s_per_row * 1e6};
    const double at[6] = {p[0], p[1], p[2], p[3] * 1e4, p[4] * 1e3, p[5] * 1e6};
    for (int i = 0; i < 6; ++i) sum += 1e-3 * (at[i] - from[i]) * (at[i] - from[i]);
    return sum;
  };
  const std::vector<Box> box = {{0.2, 0.95},   {0.4, 0.95}, {std::log(3e9), std::log(8e10)},
                                {2e-6, 60e-6}, {0, 300e-6}, {0, per_row ? kRowCeiling : 0}};
  return unpack(box_search(
      loss,
      {start.scaleup_efficiency, start.scaleout_efficiency, std::log(start.bytes_per_s_per_sm),
       start.latency_s, start.latency_scaleout_s, start.sm_s_per_row},
      box, 30));
}

// The fit on all rows; its error from five interleaved folds that did not see the rows they judge.
DispatcherRate fit_rate(const GpuFacts& gpu, const std::vector<Row>& rows,
                        const DispatcherRate& start, ErrorReport& report, bool per_row = false) {
  constexpr std::size_t kFolds = 5;
  DispatcherRate rate = search(gpu, rows, start, per_row);
  const auto error = [&](const DispatcherRate& r, const Row& row) {
    return predict(r, gpu, row) / row.seconds - 1;
  };
  std::vector<double> fitted, magnitude, errors;
  for (const Row& row : rows) fitted.push_back(std::abs(error(rate, row)));
  for (std::size_t fold = 0; fold < std::min(kFolds, rows.size()); ++fold) {
    std::vector<Row> seen, unseen;
    for (std::size_t i = 0; i < rows.size(); ++i)
      (i % kFolds == fold ? unseen : seen).push_back(rows[i]);
    const DispatcherRate r = search(gpu, seen, start, per_row);
    for (const Row& row : unseen) errors.push_back(error(r, row));
  }
  for (double e : errors) magnitude.push_back(std::abs(e));
  report.samples = static_cast<int>(rows.size());
  report.fit_median = quantile(fitted, 0.5);
  report.point_median = quantile(magnitude, 0.5);
  report.point_p90 = quantile(magnitude, 0.9);
  report.worst = quantile(magnitude, 1);
  report.bias = quantile(errors, 0.5);
  rate.error = std::max(0.05, report.sigma());
  rate.basis = Basis::interpolated;
  return rate;
}

void add_csv(const Csv& csv, const GpuFacts& gpu, std::vector<Row>& rows) {
  // Files differ in whether node_num precedes kernel_source; both name their columns.
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    double nodes = csv.number(i, "node_num");
    if (!(nodes >= 1)) nodes = csv.number(i, "kernel_source");
    const double tokens = csv.number(i, "num_token"), hidden = csv.number(i, "hidden_size");
    // Training's shapes; small hidden sizes and token counts are bound by per-token work.
    if (!(nodes >= 1) || nodes > 4 || tokens < 2048 || hidden < 4096) continue;
    const int domain = gpu.domain;
    Routing routing{csv.number(i, "num_experts"), csv.number(i, "num_topk"), 0, 0};
    const int ranks = domain * static_cast<int>(nodes);
    if (routing.experts < 4 * ranks || routing.topk < 4) continue;
    const Traffic dispatch =
        deduplicated(routing, ranks, domain, tokens, hidden + 4 * hidden / 128);
    const Traffic combine = deduplicated(routing, ranks, domain, tokens, 2 * hidden);
    const double weight = nodes > 1 ? 0.2 : 0.1;  // many shapes of one domain, few across nodes
    const auto add = [&](const Traffic& t, double bytes, const char* sms, const char* us) {
      const double seconds = csv.number(i, us) * 1e-6;
      if (seconds > 0) rows.push_back(row_of(t, bytes, csv.number(i, sms), seconds, weight));
    };
    add(dispatch, hidden + 4 * hidden / 128, "dispatch_sms", "dispatch_transmit_us");
    add(combine, 2 * hidden, "combine_sms", "combine_transmit_us");
  }
}

double leading_number(const std::string& text) { return std::strtod(text.c_str(), nullptr); }

bool contains(const std::string& text, const char* word) {
  return text.find(word) != std::string::npos;
}

std::string field(const Json& fact, const char* key) {
  const auto it = fact.find(key);
  return it == fact.end() || !it->is_string() ? std::string() : it->get<std::string>();
}

// "algorithm" and "logical" bandwidths: payload to every distinct rank (one domain) or node, over
// time.
void add_bandwidth(const Json& fact, const GpuFacts& gpu, const Routing& routing, double sms,
                   bool node_copies, std::vector<Row>& rows) {
  const std::string op = field(fact, "op");
  const double token =
      contains(op, "FP8") || (op == "dispatch" && node_copies) || field(fact, "precision") == "FP8"
          ? kFp8Token
          : kBf16Token;
  const int ranks = fact.at("ep").get<int>();
  const int domain = gpu.domain;
  const Traffic t = deduplicated(routing, ranks, domain, 4096, token);
  const double parts = ranks <= domain ? ranks : std::ceil(static_cast<double>(ranks) / domain);
  const double seconds =
      4096 * token * expected_parts(routing, parts) / (fact.at("value").get<double>() * 1e9);
  rows.push_back(row_of(t, token, sms, seconds, 1));
}

void add_table_seven(const Json& fact, const GpuFacts& gpu, bool nccl, double sms,
                     std::vector<Row>& rows) {
  const int ranks = fact.at("ep").get<int>();
  const Routing open{256, 8, 0, 0}, limited{256, 8, 8, 4};
  const double seconds = fact.at("value").get<double>() * 1e-6;
  if (nccl) {
    const Traffic t = replicated(open, ranks, gpu.domain, 4096, kBf16Token);
    rows.push_back(row_of(t, kBf16Token, sms, seconds, 1));
    return;
  }
  const Traffic a = deduplicated(open, ranks, gpu.domain, 4096, kBf16Token);
  const Traffic b = deduplicated(limited, ranks, gpu.domain, 4096, kBf16Token);
  if (b.scaleout > 0)
    rows.push_back(row_of(b, kBf16Token, sms, seconds, 1));
  else
    rows.push_back(row_of({std::sqrt(a.scaleup * b.scaleup), 0}, kBf16Token, sms, seconds, 1));
}

struct DispatchRows {
  std::vector<Row> deepep, hybridep, alltoall;
};

void add_facts(const Json& facts, const GpuFacts& gpu, DispatchRows& out) {
  const double hybrid_sms = gpu.blackwell ? 32 : 16;
  for (const Json& fact : facts) {
    if (field(fact, "kind") != "collective" || field(fact, "gpu") != gpu.facts) continue;
    if (!fact.contains("ep") || !fact.at("ep").is_number()) continue;
    const std::string unit = field(fact, "unit"), dispatcher = field(fact, "dispatcher");
    const std::string op = field(fact, "op"), notes = field(fact, "notes");
    const std::string source = field(fact, "source");
    const int ranks = fact.at("ep").get<int>();
    if (contains(source, "2603.07685 Table 7")) {
      const bool nccl = dispatcher == "NCCL A2A";
      add_table_seven(fact, gpu, nccl, nccl ? 24 : hybrid_sms, nccl ? out.alltoall : out.hybridep);
    } else if (contains(unit, "algorithm bandwidth")) {
      const Routing routing{8.0 * ranks, 8, 0, 0};
      const double sms = leading_number(notes);
      const bool kernel = contains(op, "kernel only") || contains(dispatcher, "kernel only");
      if (contains(dispatcher, "HybridEP") && kernel)
        add_bandwidth(fact, gpu, routing, sms, false, out.hybridep);
      // GB200 combine of DeepEP falls off a cliff at 24 ranks and more: a patched build.
      if (contains(dispatcher, "DeepEP") && ranks <= 16)
        add_bandwidth(fact, gpu, routing, sms, false, out.deepep);
    } else if (contains(unit, "logical") && contains(dispatcher, "DeepEP V1") && ranks <= 64) {
      const double nodes = std::max(1, ranks / 8);
      const Routing routing{256, 8, nodes > 4 ? nodes : 0, nodes > 4 ? 4.0 : 0.0};
      add_bandwidth(fact, gpu, routing, 24, true, out.deepep);
    }
  }
}

DispatcherRate rate(double up, double out, double per_sm, double latency, double latency_out,
                    int sms) {
  DispatcherRate r;
  r.scaleup_efficiency = up;
  r.scaleout_efficiency = out;
  r.bytes_per_s_per_sm = per_sm;
  r.latency_s = latency;
  r.latency_scaleout_s = latency_out;
  r.default_sms = sms;
  return r;
}

Result<void> read_deepep(const GpuFacts& gpu, const std::string& data_dir, std::vector<Row>& rows) {
  const std::string base = data_dir + "/third_party_measurements/" + gpu.files;
  if (gpu.profile != "h800") {
    TRIFOLD_ASSIGN(csv, Csv::read(base + "_comm_sglang_0.5.12_wideep_deepep_normal_perf.csv"));
    add_csv(csv, gpu, rows);
  }
  if (gpu.profile == "h100" || gpu.profile == "h200") {
    TRIFOLD_ASSIGN(
        csv,
        Csv::read(data_dir + "/third_party_measurements/"
                             "h100_sxm_comm_sglang_0.5.6.post2_wideep_deepep_normal_perf.csv"));
    add_csv(csv, gpu, rows);
  }
  return {};
}

// Share of NVLink that a curve reaches at 8 ranks (or the most measured) and its largest size.
double curve_share(const hardware::Profile& profile, Collective op, const GpuFacts& gpu) {
  const auto& curves = profile.collectives[static_cast<std::size_t>(op)];
  const hardware::CollectiveCurve* best = nullptr;
  for (const auto& curve : curves)
    if (curve.ranks <= 8 && curve.basis != Basis::scaled) best = &curve;
  if (best == nullptr) best = &curves.front();
  const double share = (best->ranks - 1.0) / best->ranks;
  return best->bytes.back() * share / best->seconds.back() / gpu.scaleup;
}

// Which GPU's rows stand for a dispatcher that was not measured on this one.
const char* hybridep_source(const GpuFacts& gpu) {
  if (gpu.profile == "b300") return "b200";
  if (gpu.profile == "gb300") return "gb200";
  if (gpu.profile == "h200" || gpu.profile == "h800") return "h100";
  return nullptr;
}

void finish(DispatcherRate& r, int sms, const std::string& source, bool scaled) {
  for (double* v : {&r.scaleup_efficiency, &r.scaleout_efficiency, &r.bytes_per_s_per_sm,
                    &r.latency_s, &r.latency_scaleout_s, &r.sm_s_per_row})
    *v = round_significant(*v, 4);
  r.default_sms = sms;
  r.source = source;
  if (!scaled) return;
  r.basis = Basis::scaled;
  r.error = std::hypot(r.error, 0.1);
}

}  // namespace

Result<void> fit_dispatchers(const GpuFacts& gpu, const std::string& data_dir,
                             hardware::Profile& profile, std::vector<ErrorReport>& reports) {
  TRIFOLD_ASSIGN(facts, read_json(data_dir + "/observations/facts.json"));
  TRIFOLD_ASSIGN(all, read_gpu_facts(data_dir));
  DispatchRows own;
  add_facts(facts, gpu, own);
  const auto report = [&](const char* name) -> ErrorReport& {
    reports.emplace_back();
    reports.back().family = std::string("dispatcher ") + name + " (5 folds)";
    return reports.back();
  };

  const double a2a = curve_share(profile, Collective::all_to_all, gpu);
  DispatcherRate nccl =
      rate(a2a, 0.88, std::max(kNcclPerCta, a2a * gpu.scaleup / 24), 12e-6, 30e-6, 24);
  if (own.alltoall.empty()) {
    nccl.basis = Basis::scaled;
    nccl.error = 0.12;
    finish(nccl, 24, "own all-to-all curve; across nodes as H100", false);
  } else {
    nccl.bytes_per_s_per_sm = 4e10;  // identified below, from what 24 CTAs reach
    nccl = fit_rate(gpu, own.alltoall, nccl, report("alltoall"));
    nccl.bytes_per_s_per_sm = std::max(kNcclPerCta, nccl.scaleup_efficiency * gpu.scaleup / 24);
    finish(nccl, 24, "arXiv:2603.07685 Table 7", false);
  }
  profile.dispatchers["alltoall"] = nccl;

  const double gather = curve_share(profile, Collective::all_gather, gpu);
  DispatcherRate allgather =
      rate(gather, 0.9, std::max(kNcclPerCta, gather * gpu.scaleup / 24), 12e-6, 30e-6, 24);
  allgather.basis = Basis::scaled;
  allgather.error = 0.12;
  finish(allgather, 24, "own all-gather curve; across nodes 0.9 of the NIC", false);
  profile.dispatchers["allgather"] = allgather;
  if (gpu.fp8 == 0) return {};  // DeepEP and HybridEP need Hopper

  std::vector<Row> deepep = own.deepep;
  const bool rack = gpu.domain > 8;
  if (rack) {  // both rack systems from the GB200 rows: one tray of 4 says nothing about 8 to 64
               // ranks
    DispatchRows gb200;
    add_facts(facts, *find_gpu(all, "gb200"), gb200);
    deepep = gb200.deepep;
  } else {
    TRIFOLD_TRY(read_deepep(gpu, data_dir, deepep));
  }
  DispatcherRate deep =
      fit_rate(gpu, deepep, rate(0.62, 0.88, 15e9, 20e-6, 60e-6, 20), report("deepep"), true);
  finish(deep, 20,
         gpu.blackwell ? "aiconfigurator and HybridEP README; across nodes as H100"
                       : "aiconfigurator, DeepEP README",
         false);
  profile.dispatchers["deepep"] = deep;

  DispatchRows lent = own;
  const char* source = hybridep_source(gpu);
  const GpuFacts* lender = source == nullptr ? &gpu : find_gpu(all, source);
  if (source != nullptr) {
    lent = {};
    add_facts(facts, *lender, lent);
  }
  DispatcherRate hybrid = fit_rate(*lender, lent.hybridep, rate(0.75, 0.85, 40e9, 20e-6, 60e-6, 16),
                                   report("hybridep"));
  finish(hybrid, gpu.domain > 8 ? 32 : 16,
         "HybridEP README and arXiv:2603.07685 Table 7, " + lender->facts, source != nullptr);
  profile.dispatchers["hybridep"] = hybrid;
  // Profiles state efficiencies of the datasheet rate.
  for (auto& [name, r] : profile.dispatchers)
    r.scaleout_efficiency = round_significant(r.scaleout_efficiency * gpu.scaleout / gpu.nic, 4);
  return {};
}

}  // namespace trifold::fit
