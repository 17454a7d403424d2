// SPDX-License-Identifier: Apache-2.0

// trifold list models|clusters|profiles|techniques

#include <fmt/format.h>

#include "base/table.h"
#include "cli.h"
#include "hardware/profile.h"
#include "model/catalogue.h"
#include "model/size.h"

namespace trifold::cli {

namespace {

Result<std::string> models(const std::string& data_dir, bool as_json) {
  Table table({"Model", "Total B", "Active B", "Layers", "Hidden", "Heads", "KV", "Experts",
               "Top-k", "Expert FFN", "MTP"});
  Json list = Json::array();
  for (const std::string& name : model::list_models(data_dir)) {
    TRIFOLD_ASSIGN(m, model::load_model(name, data_dir));
    const model::Parameters p = model::count_parameters(m);
    const bool mla = m.attention.kind == model::AttentionKind::mla;
    table.add({name, fmt::format("{:.1f}", p.total() * 1e-9),
               fmt::format("{:.1f}", p.active() * 1e-9), fmt::format("{}", m.num_layers()),
               fmt::format("{}", m.hidden), fmt::format("{}", m.attention.heads),
               mla ? "MLA" : fmt::format("{}", m.attention.kv_heads),
               fmt::format("{}", m.moe.experts), fmt::format("{}", m.moe.top_k),
               fmt::format("{}", m.moe.expert_ffn), fmt::format("{}", m.mtp_layers)});
    list.push_back({{"name", name}, {"parameters", p.total()}, {"active_parameters", p.active()}});
  }
  return as_json ? dump_json(list) : table.text();
}

Result<std::string> clusters(const std::string& data_dir, bool as_json) {
  Table table({"Cluster", "GPU", "BF16 TF", "FP8 TF", "HBM GiB", "HBM TB/s", "NVLink GB/s",
               "domain", "NIC GB/s", "host GB/s"});
  Json list = Json::array();
  for (const std::string& name : hardware::list_clusters(data_dir)) {
    TRIFOLD_ASSIGN(c, hardware::load_cluster(name, data_dir));
    table.add({name, c.gpu.name, fmt::format("{:.0f}", c.gpu.bf16.value() * 1e-12),
               fmt::format("{:.0f}", c.gpu.fp8.value() * 1e-12),
               fmt::format("{:.0f}", to_gib(c.gpu.hbm)),
               fmt::format("{:.2f}", c.gpu.hbm_bandwidth.value() * 1e-12),
               fmt::format("{:.0f}", c.scaleup_bandwidth.value() * 1e-9),
               fmt::format("{} of {}", c.gpus_used_per_domain, c.domain_gpus),
               fmt::format("{:.0f}", c.scaleout_bandwidth.value() * 1e-9),
               fmt::format("{:.0f}", c.host_bandwidth.value() * 1e-9)});
    list.push_back(hardware::to_json(c));
  }
  return as_json ? dump_json(list) : table.text();
}

Result<std::string> profiles(const std::string& data_dir, bool as_json) {
  Table table({"Profile", "GPU", "date", "NCCL", "source"});
  table.align(1, Table::Align::left), table.align(4, Table::Align::left);
  Json list = Json::array();
  for (const std::string& name : hardware::list_profiles(data_dir)) {
    TRIFOLD_ASSIGN(p, hardware::load_profile(name, data_dir));
    table.add({name, p.provenance.gpu, p.provenance.date, p.provenance.nccl, p.provenance.source});
    list.push_back({{"name", name}, {"gpu", p.provenance.gpu}, {"source", p.provenance.source}});
  }
  return as_json ? dump_json(list) : table.text();
}

template <class E, std::size_t N>
void add_tokens(Table& table, Json& list, const char* field, const Token<E> (&tokens)[N]) {
  std::string words;
  for (const Token<E>& token : tokens) {
    words += (words.empty() ? "" : " ") + std::string(token.name);
    list[field].push_back(token.name);
  }
  table.add({field, words});
}

std::string techniques(bool as_json) {
  Table table({"Field", "words"});
  table.align(1, Table::Align::left);
  Json list;
  add_tokens(table, list, "training.precision", job::kPrecisions);
  add_tokens(table, list, "techniques.dispatcher", job::kDispatchers);
  add_tokens(table, list, "techniques.overlap", job::kOverlaps);
  add_tokens(table, list, "techniques.recompute", job::kRecomputes);
  add_tokens(table, list, "techniques.cuda_graph", job::kGraphScopes);
  add_tokens(table, list, "techniques.fusions", job::kFusions);
  add_tokens(table, list, "techniques.offload.activation_modules", job::kOffloadModules);
  add_tokens(table, list, "techniques.offload.optimizer", job::kOptimizerOffloads);
  add_tokens(table, list, "techniques.cp_comm", job::kCpComms);
  add_tokens(table, list, "techniques.gradient_compression", job::kGradientCompressions);
  add_tokens(table, list, "techniques.routing.distribution", job::kLoadDistributions);
  add_tokens(table, list, "schedule.kind", layout::kScheduleKinds);
  return as_json ? dump_json(list) : table.text();
}

}  // namespace

void add_list(CLI::App& app, Context& context) {
  struct Options {
    std::string what;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("list", "what the catalogue holds");
  verb->add_option("what", options->what, "models, clusters, profiles or techniques")
      ->required()
      ->check(CLI::IsMember({"models", "clusters", "profiles", "techniques"}));
  verb->add_flag("--json", options->json, "for machines");
  verb->footer("Examples:\n  trifold list models\n  trifold list clusters --json\n");
  verb->callback([&context, options] {
    context.run = [&context, options] {
      Result<std::string> text =
          options->what == "models"     ? models(context.data_dir, options->json)
          : options->what == "clusters" ? clusters(context.data_dir, options->json)
          : options->what == "profiles" ? profiles(context.data_dir, options->json)
                                        : Result<std::string>(techniques(options->json));
      if (!text) return report(text.error());
      print(*text);
      return static_cast<int>(kDone);
    };
  });
}

}  // namespace trifold::cli
