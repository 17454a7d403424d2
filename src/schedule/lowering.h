// SPDX-License-Identifier: Apache-2.0
#pragma once

// Internal to schedule/: the state of one lowering, shared by lower.cc (units), merge.cc (pairs),
// data_parallel.cc and offload.cc.

#include "cost/step.h"
#include "schedule/lower.h"

namespace trifold::schedule {

inline constexpr sim::Index kNone = -1;

// Data parallelism of one chunk: elements on this rank, and its transfers alone.
struct DataWork {
  cost::StageParameters held;
  double reduce_s = 0, gather_s = 0;
};

class Lowering {
 public:
  Lowering(const job::Job& job, const layout::Pipeline& pipeline, cost::Pricer& pricer,
           const LoweringOptions& options, Lowered& out);
  void run();

 private:
  struct Unit {
    int stage = 0, chunk = 0, microbatch = 0;
  };

  // lower.cc
  void add_streams();
  void emit_stage(int stage);
  void forward_unit(const Unit& u);
  void backward_unit(const Unit& u, bool split);
  void wgrad_unit(const Unit& u);
  sim::Index forward_layer(const Unit& u, int layer, sim::Index after);
  sim::Index backward_layer(const Unit& u, int layer, bool split, sim::Index after);
  sim::Index begin_unit(const Unit& u, bool forward);
  void end_unit(const Unit& u, bool forward, sim::Index last);
  void connect();
  const BlockProgram& program_of(const layout::Chunk& chunk, int layer) const;
  int layers_of(const layout::Chunk& chunk) const { return chunk.all_layers(); }
  bool is_mtp(const Unit& u, int layer) const { return layer >= chunk_of(u).layers; }
  const layout::Chunk& chunk_of(const Unit& u) const {
    return chunk_at(pipeline_, out_.program, u.stage, u.chunk);
  }
  sim::Index add(const Unit& u, const TimedOp& op, sim::Picoseconds work, int layer, Work kind,
                 sim::Index after);
  // The operators of a piece, each after the one before; returns the last task (`after` if none).
  sim::Index chain(const Unit& u, const BlockProgram& program, const Piece& piece, int layer,
                   Work kind, sim::Index after, double part = 1);
  double blocking_share(const TimedOp& op) const;
  const TimedOp& hidden_part(const TimedOp& op) const {
    return op.category == Category::cp ? out_.programs.hidden_cp : out_.programs.hidden_tp;
  }
  sim::Index host_wait(const Unit& u, double seconds, Work kind, sim::Index after);
  void depend(sim::Index before, sim::Index after) {
    if (before >= 0 && after >= 0) step_.graph.add_dependency(before, after);
  }
  sim::Index marker(const Unit& u, Work kind);  // takes no time; orders the compute stream
  std::size_t unit_index(const Unit& u) const {
    return (static_cast<std::size_t>(u.stage) * static_cast<std::size_t>(out_.program.chunks) +
            static_cast<std::size_t>(u.chunk)) *
               static_cast<std::size_t>(out_.program.microbatches) +
           static_cast<std::size_t>(u.microbatch);
  }
  sim::Picoseconds scaled(const Unit& u, const TimedOp& op, int layer) const;
  void draw_loads();
  void set_host_waits();
  double device_s(const BlockProgram& b, const Piece& piece) const;

  // megascale.cc: the shared expert beside dispatch, MegaScale's operators
  sim::Index overlapped_forward(const Unit& u, const BlockProgram& b, int layer, sim::Index after);
  sim::Index overlapped_backward(const Unit& u, const BlockProgram& b, int layer, sim::Index after);
  sim::Index fused_experts(const Unit& u, const BlockProgram& b, int layer, bool forward,
                           sim::Index after);

  // merge.cc
  void merged_unit(const Unit& f, const Unit& b);
  struct Pair {
    sim::Index forward = kNone, backward = kNone;
    sim::Index wgrad = kNone;  // the layer's last weight gradient: nothing but its reduction waits
  };
  Pair merged_layers(const Unit& f, int forward_layer, const Unit& b, int backward_layer, Pair in);
  double pair_device_s(const BlockProgram& f, const BlockProgram& b) const;

  // data_parallel.cc
  void begin_step();
  void end_step();
  void reduce_chunk(int stage, int chunk);
  DataWork data_work(const layout::Chunk& chunk) const;
  sim::Index data_task(int stage, int chunk, const TimedOp& op, double seconds, sim::Index after);
  void gather_layer(const Unit& u, int layer, bool forward);
  void scatter_layer(const Unit& u, int layer, sim::Index after);
  sim::Index optimizer(int stage, sim::Index after);

  // offload.cc
  void offload_layer(const Unit& u, int layer, sim::Index after);
  void reload_layer(const Unit& u, int layer);
  double copy_seconds(const layout::Chunk& chunk, int layer) const;

  const job::Job& job_;
  const layout::Pipeline& pipeline_;
  cost::Pricer& pricer_;
  const LoweringOptions& options_;
  Lowered& out_;
  StepGraph& step_;

  double send_s_ = 0;
  double tp_share_ = 1, cp_share_ = 1;  // of a transfer that its neighbours wait for
  bool blocking_sends_ = false;
  bool overlapped_ = false, merged_ = false;
  std::vector<sim::Index> forward_in_, backward_in_, forward_out_, backward_out_;  // by unit
  std::vector<sim::Index> wgrad_end_, offload_end_;                                // by unit
  std::vector<sim::Index> last_backward_layer_;  // of chunk 0 on stage 0, last micro-batch
  std::vector<DataWork> data_;                   // by stage x chunk
  std::vector<sim::Index> first_forward_;        // by stage x chunk
  std::vector<sim::Index> gathers_;              // by stage x chunk: the last of its gathers
  std::vector<sim::Index> reduces_;              // by stage x chunk
  std::vector<double> load_factors_;
  std::vector<double> layer_copy_s_;  // by layer kind
  sim::Index pending_gather_ = kNone, pending_reload_ = kNone;
  sim::Index barrier_stream_ = kNone;
};

}  // namespace trifold::schedule
