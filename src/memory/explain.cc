// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/table.h"
#include "memory/stage.h"

namespace trifold::memory {

namespace {

using Part = Term::Part;

std::string divisor_text(const Shard& shard) {
  if (shard.by <= 1) return shard.group[0] == 0 ? shard.why : fmt::format("{} 1", shard.group);
  return fmt::format("{} {}: {}", shard.group, shard.by, shard.why);
}

// Writes one Term a call; `times` multiplies a term, with words ("60 layer-micro-batches").
class TermSink {
 public:
  TermSink(std::vector<Term>& terms, Part part) : terms_(terms), part_(part) {}
  Half half = Half::attention;

  void times(std::int64_t count, std::string label) { count_ = count, label_ = std::move(label); }
  void prefix(std::string text) { prefix_ = std::move(text); }
  std::int64_t total() const { return total_; }

  template <class... Fs>
  void add(Keep keep, const char* name, const Shard& shard, Width w, Fs... factors) {
    if (keep == Keep::rebuilt) return;
    const std::int64_t bytes = (factors.value * ... * w.numerator) >> w.shift;
    if (bytes == 0 || count_ == 0) return;
    std::string formula = label_.empty() ? "" : fmt::format("{} {}", thousands(count_), label_);
    const auto append = [&](const Factor& f) {
      if (!formula.empty()) formula += " x ";
      formula +=
          f.label[0] == 0 ? thousands(f.value) : fmt::format("{} {}", thousands(f.value), f.label);
    };
    (append(factors), ...);
    formula += fmt::format(" x {}", w.label);
    push(name, formula, divisor_text(shard), bytes * count_);
  }

  void push(const std::string& name, std::string formula, std::string divisor, std::int64_t bytes) {
    if (bytes == 0) return;
    terms_.push_back(
        Term{part_, prefix_ + name, std::move(formula), std::move(divisor), Bytes(bytes)});
    total_ += bytes;
  }

 private:
  std::vector<Term>& terms_;
  Part part_;
  std::int64_t count_ = 1, total_ = 0;
  std::string label_, prefix_;
};

// Elements by name, merged over the kinds of layer that hold them.
struct ParameterTerm {
  Class klass;
  std::string name;
  Shard shard;
  std::int64_t each, times;
};

struct ParameterSink {
  std::vector<ParameterTerm>& terms;
  std::int64_t times;
  void add(Class c, const char* name, const Shard& shard, std::int64_t count) {
    if (count == 0 || times == 0) return;
    for (ParameterTerm& t : terms)
      if (t.name == name && t.each == count) {
        t.times += times;
        return;
      }
    terms.push_back(ParameterTerm{c, name, shard, count, times});
  }
};

std::vector<ParameterTerm> parameter_terms(const job::Job& job, const Tables& t,
                                           const StagePlan& p) {
  std::vector<ParameterTerm> out;
  for (int kind = 0; kind < 2; ++kind) {
    ParameterSink sink{out, p.layers[kind]};
    if (p.layers[kind] > 0)
      add_layer_parameters(job, t.s, model::LayerKind{kind == 1, false}, sink);
  }
  ParameterSink mtp{out, p.mtp}, embedding{out, p.embeddings}, head{out, p.head ? 1 : 0};
  if (p.mtp > 0) add_mtp_parameters(job, t.s, mtp);
  if (p.embeddings > 0) add_embedding_parameters(job, t.s, embedding);
  if (p.head) add_head_parameters(job, t.s, p.output, head);
  return out;
}

struct StatePart {
  Part part;
  std::int64_t total;
  bool sharded;
};

std::int64_t part_bytes(const Sizes& s, Part part, const ParameterTerm& term, bool sharded) {
  const std::int64_t count = term.each * term.times;
  const std::int64_t by = !sharded                      ? 1
                          : term.klass == Class::expert ? s.expert_shards
                                                        : s.dense_shards;
  const Width& w = term.klass == Class::other ? s.states.other : s.states.linear;
  switch (part) {
    case Part::weights:
      return ((count * w.numerator) >> w.shift) / by;
    case Part::gradients:
      return count * s.states.gradient / by;
    default:
      return count * (term.klass == Class::other ? s.states.optimizer_other : s.states.optimizer) /
             by;
  }
}

std::string width_text(const Sizes& s, Part part, const ParameterTerm& term) {
  const bool other = term.klass == Class::other;
  if (part == Part::weights) return other ? s.states.other.label : s.states.linear.label;
  if (part == Part::gradients) return fmt::format("{} B (gradient buffer)", s.states.gradient);
  return fmt::format("{} B (master and moments)",
                     other ? s.states.optimizer_other : s.states.optimizer);
}

void explain_state(const Sizes& s, const StatePart& state,
                   const std::vector<ParameterTerm>& parameters, std::vector<Term>& terms) {
  TermSink sink(terms, state.part);
  if (state.total == 0) return;  // on the host
  for (const ParameterTerm& p : parameters) {
    const bool expert = p.klass == Class::expert;
    const std::int64_t by = !state.sharded ? 1 : expert ? s.expert_shards : s.dense_shards;
    std::string formula = fmt::format("{} x {} parameters x {}", p.times, thousands(p.each),
                                      width_text(s, state.part, p));
    std::string divisor = divisor_text(p.shard);
    if (by > 1) {
      formula += fmt::format(" / {}", by);
      divisor += expert ? fmt::format("; edp {}: replicas of an expert share its states", by)
                        : fmt::format("; dp x cp {}: replicas share dense states", by);
    }
    sink.push(p.name, std::move(formula), std::move(divisor),
              part_bytes(s, state.part, p, state.sharded));
  }
  sink.push("bucket padding and rounding",
            fmt::format("to {} (dense) and {} (expert) elements", s.dense_unit, s.expert_unit),
            "lcm(shards, 128)", state.total - sink.total());
}

void explain_activations(const job::Job& job, const Tables& t, const StagePlan& p,
                         std::vector<Term>& terms) {
  TermSink sink(terms, Part::activations);
  static constexpr const char* kPrefix[2] = {"dense layers: ", "MoE layers: "};
  for (int kind = 0; kind < 2; ++kind) {
    if (p.units[kind] == 0) continue;
    sink.prefix(kPrefix[kind]);
    sink.times(p.units[kind], "layer-micro-batches in flight");
    add_layer(job, t.s, model::LayerKind{kind == 1, false}, sink);
    const LayerBytes& b = t.layer[kind];
    const std::int64_t host = t.s.offload_layers > 0 ? b.kept + b.offloaded : b.offloaded;
    sink.push("moved to the host",
              fmt::format("{} layer-micro-batches x {} B", p.hosted[kind], thousands(host)),
              "activation offload; the layers copied back next stay", -p.hosted[kind] * host);
  }
  sink.prefix("");
  sink.times(p.mtp_units, "depth-micro-batches in flight");
  if (p.mtp_units > 0) add_mtp_extra(t.s, sink);
}

void explain_moment(const job::Job& job, const Tables& t, const StagePlan& p, TermSink& sink) {
  if (p.moment == StageMoment::update) return;
  if (p.moment == StageMoment::loss) {
    sink.prefix(t.loss_moment == LossMoment::cross_entropy ? "at the loss: "
                                                           : "backward of the output layer: ");
    add_loss(job, t.s, t.loss_moment, sink);
    return;
  }
  const LayerBytes& b = t.layer[p.moe_backward ? 1 : 0];
  sink.prefix(fmt::format("{}: ", kMomentNames[static_cast<int>(b.moment)]));
  add_layer_backward(job, t.s, p.moe_backward, b.moment, sink);
  sink.push("tensors rebuilt by recompute", "one layer", "one layer at a time", b.rebuilt);
  sink.push("feed-forward half of the layer, freed", "one layer", "one layer at a time", b.freed);
  sink.push("layer that the forward beside it fills", "one layer", "merged units", p.beside);
  sink.push("attention, released before the forward beside it", "one layer", "merged units",
            b.released);
}

}  // namespace

std::vector<Term> explain(const job::Job& job, const layout::Pipeline& pipeline, int stage) {
  TRIFOLD_CHECK(stage >= 0 && stage < pipeline.pp);
  const Tables t = tables_of(job, pipeline);
  const StagePlan p = plan_stage(job, pipeline, t, job.schedule_shape(), stage);
  const std::vector<ParameterTerm> parameters = parameter_terms(job, t, p);
  std::vector<Term> terms;
  const StatePart parts[] = {{Part::weights, p.states.weights, t.s.fsdp},
                             {Part::gradients, p.states.gradients, t.s.fsdp},
                             {Part::optimizer, p.states.optimizer, true}};
  for (const StatePart& part : parts) explain_state(t.s, part, parameters, terms);
  explain_activations(job, t, p, terms);
  TermSink buffers(terms, Part::buffers);
  explain_moment(job, t, p, buffers);
  buffers.prefix("");
  add_persistent_buffers(job, t, p, buffers);
  return terms;
}

}  // namespace trifold::memory
