// SPDX-License-Identifier: Apache-2.0
#include "report/estimate_text.h"

#include <fmt/format.h>

#include "base/table.h"
#include "model/size.h"

namespace trifold::report {

namespace {

template <class E, std::size_t N>
std::string words(const Token<E> (&table)[N], EnumSet<E> set) {
  std::string text;
  for (const Token<E>& token : table)
    if (set.contains(token.value)) text += " " + std::string(token.name);
  return text;
}

std::string headline(const job::Job& job, const estimate::Estimate& e) {
  return fmt::format(
      "{} on {} x {}, sequence {}, global batch {}, {}\n"
      "  {}\n  {}\n"
      "  step {} ({} to {}, 80 % interval) | {} tokens/s/GPU | {:.0f} TFLOP/s/GPU | MFU {} of the "
      "BF16 peak\n",
      job.model.name, thousands(job.gpus), job.cluster.name,
      thousands(job.training.sequence_length), thousands(job.training.global_batch_size),
      token_name(job::kPrecisions, job.training.precision), layout_text(job), techniques_text(job),
      human_seconds(e.step_time_s), human_seconds(e.low_s), human_seconds(e.high_s),
      thousands(static_cast<long long>(e.tokens_per_s_per_gpu)), e.tflops_per_gpu, percent(e.mfu));
}

std::string walls(const estimate::Estimate& e) {
  Table table({"Time", "seconds", "share"});
  const auto row = [&](const std::string& name, double seconds) {
    table.add({name, fmt::format("{:.4f}", seconds), percent(seconds / e.step_time_s)});
  };
  for (const auto& [name, seconds] : e.time.terms()) row(name, seconds);
  table.rule();
  row("step", e.step_time_s);
  return table.text("  ");
}

std::string communication(const estimate::Estimate& e) {
  Table table({"Communication", "total s", "of step", "exposed s", "of step", "hidden"});
  for (std::size_t i = 0; i < estimate::kComms; ++i) {
    const estimate::Communication& c = e.communication[i];
    if (c.total_s <= 0) continue;
    table.add({estimate::kCommNames[i], fmt::format("{:.4f}", c.total_s),
               percent(c.total_s / e.step_time_s), fmt::format("{:.4f}", c.exposed_s),
               percent(c.exposed_s / e.step_time_s),
               percent(1 - std::min(1.0, c.exposed_s / c.total_s))});
  }
  return table.rows() == 0 ? "" : table.text("  ");
}

std::string kernels(const estimate::Estimate& e) {
  using estimate::Work;
  const auto share = [&](Work work) { return percent(e.kernels.of(work) / e.step_time_s); };
  std::string text =
      fmt::format("  kernels, of the step: GEMM {}, attention {}, memory-bound {}",
                  share(Work::gemm), share(Work::attention), share(Work::memory_bound));
  if (e.kernels.of(Work::quantize) > 0) text += ", quantise " + share(Work::quantize);
  if (e.kernels.of(Work::routing) > 0) text += ", routing and permutation " + share(Work::routing);
  return text + "\n\n";
}

std::string memory_table(const memory::Memory& m) {
  Table table({"Stage", "weights", "gradients", "optimizer", "activations", "buffers", "peak GiB",
               "reserved"});
  for (std::size_t i = 0; i < m.stages.size(); ++i) {
    const memory::StageMemory& s = m.stages[i];
    const auto gib = [](Bytes b) { return fmt::format("{:.2f}", to_gib(b)); };
    table.add({fmt::format("{}{}", i, static_cast<int>(i) == m.worst_stage ? " *" : ""),
               gib(s.weights), gib(s.gradients), gib(s.optimizer), gib(s.activations),
               gib(s.buffers), gib(s.peak), gib(s.reserved)});
  }
  return table.text("  ") + fmt::format("  capacity {:.1f} GiB, headroom {:.1f} GiB{}\n",
                                        to_gib(m.capacity), to_gib(m.headroom),
                                        m.fits() ? "" : ": DOES NOT FIT");
}

}  // namespace

std::string layout_text(const job::Job& job) {
  const layout::Layout& l = job.layout;
  std::string text = fmt::format("tp {}", l.tp);
  if (l.ulysses_sp > 1) text += fmt::format(" ulysses {}", l.ulysses_sp);
  text += fmt::format(" cp {} pp {} vpp {}", l.cp, l.pp, l.vpp);
  if (job.model.is_moe()) text += fmt::format(" ep {} etp {}", l.ep, l.etp);
  text += fmt::format(" (dp {}", job.dp());
  if (job.model.is_moe()) text += fmt::format(", edp {}", job.edp());
  text += fmt::format("), micro-batch {}", job.training.micro_batch_size);
  if (job.dp() > 0) text += fmt::format(" x {}", job.microbatches());  // 0: illegal, named anyway
  if (l.fsdp) text += ", FSDP";
  if (!l.pipeline_layout.empty()) text += fmt::format(", layout {}", l.pipeline_layout);
  return text;
}

std::string techniques_text(const job::Job& job) {
  const job::Techniques& t = job.techniques;
  std::string text;
  if (job.model.is_moe()) {
    text += fmt::format("dispatcher {}", token_name(job::kDispatchers, t.dispatcher));
    if (t.dispatcher_sms > 0) text += fmt::format(" ({} SMs)", t.dispatcher_sms);
    text += "; ";
  }
  text += "overlap" + (t.overlap.empty() ? std::string(" none") : words(job::kOverlaps, t.overlap));
  text += "; recompute" +
          (t.recompute.empty() ? std::string(" none") : words(job::kRecomputes, t.recompute));
  if (!t.cuda_graph.empty()) text += "; graphs" + words(job::kGraphScopes, t.cuda_graph);
  if (!t.fusions.empty()) text += "; fusions" + words(job::kFusions, t.fusions);
  if (!t.offload.activation_modules.empty())
    text += "; offload" + words(job::kOffloadModules, t.offload.activation_modules);
  return text;
}

std::string estimate_text(const job::Job& job, const estimate::Estimate& e) {
  std::string basis;
  for (const auto& token : hardware::kBases)
    basis += fmt::format("{}{} {:.0f} %", basis.empty() ? "" : ", ", token.name,
                         100 * e.basis_share[static_cast<std::size_t>(token.value)]);
  return headline(job, e) + "\n" + walls(e) + "\n" + communication(e) + "\n" + kernels(e) +
         memory_table(e.memory) + "  closed-form estimate; costs known as: " + basis + "\n";
}

std::string memory_text(const job::Job& job, const layout::Pipeline& pipeline) {
  static constexpr const char* kParts[] = {"weights", "gradients", "optimizer", "activations",
                                           "buffers"};
  std::string text;
  for (int stage = 0; stage < pipeline.pp; ++stage) {
    const std::vector<memory::Term> terms = memory::explain(job, pipeline, stage);
    std::int64_t sum = 0;
    for (const memory::Term& term : terms) sum += term.bytes.value();
    Table table({"Part", "term", "GiB", "share", "formula", "divisor"});
    for (std::size_t column : {1u, 4u, 5u}) table.align(column, Table::Align::left);
    for (const memory::Term& term : terms)
      table.add({kParts[static_cast<std::size_t>(term.part)], term.name,
                 fmt::format("{:.3f}", to_gib(term.bytes)),
                 percent(static_cast<double>(term.bytes.value()) / static_cast<double>(sum)),
                 term.formula, term.divisor});
    text += fmt::format("Stage {}: {:.2f} GiB allocated at the peak\n{}\n", stage,
                        to_gib(Bytes(sum)), table.text("  "));
  }
  Table table({"What one change frees on the fullest stage", "GiB freed", "peak GiB then", ""});
  table.align(3, Table::Align::left);
  for (const memory::Lever& lever : memory::levers(job, pipeline))
    if (lever.freed.value() > 0)
      table.add({lever.change, fmt::format("{:.2f}", to_gib(lever.freed)),
                 fmt::format("{:.2f}", to_gib(lever.peak)),
                 lever.changes_layout ? "changes the layout" : ""});
  text += table.text("  ");
  return text;
}

}  // namespace trifold::report
