// SPDX-License-Identifier: Apache-2.0
// One unit's forward against another's backward, layer by layer: cost/merged_pair.h, with
//
//   * layers paired by count; surplus layers, embedding and head run alone;
//   * transfers that cannot hide shown as waits of the compute stream;
//   * what the dispatcher's SMs cost the GEMMs from contention.cc;
//   * an MTP depth as a layer with its projection before attention;
//   * under `delay_wgrad` the chunk's first layer sending its gradient before A.wgrad
//     (Megatron's model_chunk_schedule_plan.py).
#include <algorithm>

#include "cost/merged_pair.h"
#include "schedule/lowering.h"

namespace trifold::schedule {

using job::Overlap;
using layer::Segment;

namespace {

constexpr std::size_t at(Segment s) { return static_cast<std::size_t>(s); }

}  // namespace

double Lowering::pair_device_s(const BlockProgram& f, const BlockProgram& b) const {
  const bool delayed = job_.techniques.has(Overlap::delay_wgrad);
  const bool early = job_.techniques.has(Overlap::early_attn_release);
  const auto part = [&](const BlockProgram& x, const std::array<Piece, layer::kSegments>& of,
                        Segment one, Segment other) {
    return device_s(x, of[at(one)]) + device_s(x, of[at(other)]);
  };
  const auto attention = [&](const BlockProgram& x, const auto& of) {
    return part(x, of, Segment::attention, Segment::shared);
  };
  const auto experts = [&](const BlockProgram& x, const auto& of) {
    return part(x, of, Segment::experts, Segment::dispatch);
  };
  cost::MergedPair p;
  p.attention_forward = attention(f, f.f), p.experts_forward = experts(f, f.f);
  p.attention_backward = attention(b, b.b), p.experts_backward = experts(b, b.b);
  (delayed ? p.attention_wgrad : p.attention_backward) += attention(b, b.w);
  (delayed ? p.experts_wgrad : p.experts_backward) += experts(b, b.w);
  p.dispatch_forward = device_s(f, f.f_dispatch_comm);
  p.dispatch_backward = device_s(b, b.b_dispatch_comm);
  p.combine_forward = device_s(f, f.f_combine_comm) + device_s(f, f.f_combined);
  p.combine_backward = device_s(b, b.b_combine_comm) + device_s(b, b.b_combining);
  return p.seconds(early);
}

Lowering::Pair Lowering::merged_layers(const Unit& f, int forward_layer, const Unit& b,
                                       int backward_layer, Pair in) {
  const bool delayed = job_.techniques.has(Overlap::delay_wgrad);
  const BlockProgram& x = program_of(chunk_of(f), forward_layer);
  const BlockProgram& y = program_of(chunk_of(b), backward_layer);
  const auto forward = [&](const Piece& p, sim::Index after) {
    return chain(f, x, p, forward_layer, Work::forward, after);
  };
  const auto backward = [&](const Piece& p, sim::Index after) {
    return chain(b, y, p, backward_layer, Work::backward, after);
  };
  gather_layer(f, forward_layer, true);
  reload_layer(b, backward_layer);
  const sim::Index combined = backward(y.b_combine_comm, backward(y.b_combining, in.backward));
  const BlockProgram& projection = out_.programs.mtp_projection;
  if (is_mtp(f, forward_layer))
    in.forward = chain(f, projection, projection.forward, forward_layer, Work::forward, in.forward);
  // The shared expert stands first, so that the count exchange ends A.
  const sim::Index attended =
      forward(x.f[at(Segment::attention)], forward(x.f[at(Segment::shared)], in.forward));
  // Its row counts travel behind C.bwd, and the host launches nothing before they are there.
  if (x.waits_for_counts) depend(combined, attended);
  const sim::Index dispatched = forward(x.f_dispatch_comm, attended);
  sim::Index experts = backward(y.b[at(Segment::experts)], combined);
  depend(combined, experts);
  if (!delayed) experts = backward(y.w[at(Segment::experts)], experts);
  const sim::Index returned =
      backward(y.b_dispatch_comm, backward(y.b[at(Segment::dispatch)], experts));
  if (delayed) backward(y.w[at(Segment::experts)], experts);
  const bool early = job_.techniques.has(Overlap::early_attn_release);
  sim::Index attention = kNone;
  const auto attention_backward = [&] {
    attention = backward(y.b[at(Segment::attention)], backward(y.b[at(Segment::shared)], returned));
    if (!delayed)
      attention =
          backward(y.w[at(Segment::attention)], backward(y.w[at(Segment::shared)], attention));
  };
  if (early) attention_backward();
  sim::Index expert = forward(x.f[at(Segment::dispatch)], dispatched);
  expert = forward(x.f[at(Segment::experts)], expert);
  const sim::Index sent = forward(x.f_combine_comm, expert);
  if (!early) attention_backward();
  sim::Index wgrad = kNone;
  if (delayed)
    wgrad = backward(y.w[at(Segment::attention)], backward(y.w[at(Segment::shared)], attention));
  if (is_mtp(b, backward_layer))
    attention =
        chain(b, projection, projection.backward, backward_layer, Work::backward, attention);
  Pair out;
  out.forward = forward(x.f_combined, sent);
  out.backward = attention;
  // An MTP depth's projection has weight gradients too, behind A.wgrad.
  out.wgrad = delayed && !is_mtp(b, backward_layer) ? wgrad : attention;
  double wait = 0;
  if (x.host_forward_s + y.host_backward_s > 0) {
    double host = x.host_forward_s + y.host_backward_s;
    if (!job_.techniques.has(job::GraphScope::full_iteration))
      host = host * pricer_.constants().host_overlap_factor + y.host_merge_s;
    wait = cost::host_wait_s(pair_device_s(x, y), host);
    if (x.routed) wait += cost::kPairHops;
  }
  out.forward = host_wait(f, wait, Work::forward, out.forward);
  offload_layer(f, forward_layer, out.forward);
  scatter_layer(b, backward_layer, out.wgrad);
  return out;
}

void Lowering::merged_unit(const Unit& f, const Unit& b) {
  const layout::Chunk &x = chunk_of(f), &y = chunk_of(b);
  Pair now;
  now.forward = begin_unit(f, true);
  now.backward = begin_unit(b, false);
  const BlockProgram &head = out_.programs.head, &embedding = out_.programs.embedding;
  if (x.embedding)
    now.forward = chain(f, embedding, embedding.forward, -1, Work::forward, now.forward);
  for (int i = 0; y.loss && i < 1 + job_.model.mtp_layers; ++i)
    now.backward = chain(b, head, head.backward, -1, Work::backward, now.backward);
  now.wgrad = now.backward;
  const int pairs = std::min(layers_of(x), layers_of(y));
  int i = 0, j = layers_of(y) - 1;
  for (; i < pairs; ++i, --j) now = merged_layers(f, i, b, j, now);
  for (; j >= 0; --j) now.backward = now.wgrad = backward_layer(b, j, false, now.backward);
  for (; i < layers_of(x); ++i) now.forward = forward_layer(f, i, now.forward);
  for (int k = 0; x.loss && k < 1 + job_.model.mtp_layers; ++k)
    now.forward = chain(f, head, head.forward, -1, Work::forward, now.forward);
  if (y.embedding)
    now.backward = chain(b, embedding, embedding.backward, -1, Work::backward, now.backward);
  end_unit(f, true, now.forward);
  end_unit(b, false, now.backward);
  wgrad_end_[unit_index(b)] = y.embedding ? now.backward : now.wgrad;
  // One frees the layers that the other fills: as many are alive at the end as at the start.
  for (const auto& [u, change] : {std::pair{b, -1}, std::pair{f, 1}})
    step_.memory.push_back({now.backward, static_cast<std::int16_t>(u.stage),
                            static_cast<std::int16_t>(u.chunk), static_cast<std::int8_t>(change)});
}

}  // namespace trifold::schedule
