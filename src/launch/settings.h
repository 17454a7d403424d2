// SPDX-License-Identifier: Apache-2.0
#pragma once

// Megatron's `args` after its own defaults: the numbers that rules and the import speak about.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launch/arguments.h"
#include "launch/flags.h"

namespace trifold::launch {

class Settings {
 public:
  Settings(const Arguments& arguments, std::int64_t gpus);

  bool has(std::string_view flag) const { return arguments_->has(flag); }
  std::string text(std::string_view flag) const;  // its value, else Megatron's default
  std::int64_t integer(std::string_view flag, std::int64_t otherwise = 0) const;
  double real(std::string_view flag, double otherwise = 0) const;
  std::vector<std::string> list(std::string_view flag) const;
  bool lists(std::string_view flag, std::string_view value) const;
  const Arguments& arguments() const { return *arguments_; }

  std::int64_t gpus = 0;
  std::int64_t tp = 1, cp = 1, pp = 1, ep = 1, etp = 1;
  std::int64_t gtp = 1, egtp = 1;  // further weight shards per tensor rank
  std::int64_t dp = 1;             // as Megatron: world / (tp pp cp gtp)
  std::int64_t vpp = 0;            // 0: no interleaving
  std::int64_t layers = 0, mtp = 0, experts = 0;
  std::int64_t micro_batch = 0, global_batch = 0, microbatches = 0;
  bool sequence_parallel = false;  // after Megatron switched it off for tp 1
  bool moe = false, mla = false, fsdp = false, distributed_optimizer = false;
  bool fp8 = false, fp4 = false, ep_overlap = false;
  bool selective = false, full_recompute = false;
  std::vector<std::string> recompute;      // modules, when selective
  std::vector<std::string> graph_modules;  // of --cuda-graph-modules or --cuda-graph-scope
  std::string graph_impl = "none", dispatcher = "allgather", backend;  // backend: flex only
  std::string optimizer = "adam";

 private:
  void read_parallel();
  void read_pipeline();
  void read_techniques();
  const Arguments* arguments_;
};

bool contains(const std::vector<std::string>& list, std::string_view value);

}  // namespace trifold::launch
