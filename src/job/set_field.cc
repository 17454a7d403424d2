// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "job/job.h"
#include "model/catalogue.h"

// `--set a.b=c` on a Job's JSON. The value is written as it would stand in the file, so ranges,
// tokens and types are the reader's business; here are only names and units.

namespace trifold::job {

namespace {

enum class Shape : std::uint8_t { plain, list };

struct Field {
  std::string_view key;
  Shape shape = Shape::plain;
};

constexpr Field kFields[] = {{"model"},
                             {"cluster"},
                             {"profile"},
                             {"gpus"},
                             {"rank"},
                             {"training.sequence_length"},
                             {"training.global_batch_size"},
                             {"training.micro_batch_size"},
                             {"training.precision"},
                             {"training.optimizer.name"},
                             {"training.optimizer.distributed"},
                             {"training.optimizer.main_params"},
                             {"training.optimizer.main_grads"},
                             {"training.optimizer.moments"},
                             {"training.optimizer.grad_reduce"},
                             {"training.optimizer.fp8_param_gather"},
                             {"layout.tp"},
                             {"layout.cp"},
                             {"layout.ulysses_sp"},
                             {"layout.pp"},
                             {"layout.vpp"},
                             {"layout.ep"},
                             {"layout.etp"},
                             {"layout.fsdp"},
                             {"layout.order"},
                             {"layout.pipeline_layout"},
                             {"layout.account_for_embedding"},
                             {"layout.account_for_loss"},
                             {"layout.first_stage_layers"},
                             {"layout.last_stage_layers"},
                             {"techniques.dispatcher"},
                             {"techniques.dispatcher_sms"},
                             {"techniques.dispatch_precision"},
                             {"techniques.overlap", Shape::list},
                             {"techniques.recompute", Shape::list},
                             {"techniques.cuda_graph", Shape::list},
                             {"techniques.fusions", Shape::list},
                             {"techniques.offload.activation_modules", Shape::list},
                             {"techniques.offload.activation_layers"},
                             {"techniques.offload.optimizer"},
                             {"techniques.offload.fraction"},
                             {"techniques.routing.balance"},
                             {"techniques.routing.capacity_factor"},
                             {"techniques.routing.pad_to_capacity"},
                             {"techniques.routing.distribution"},
                             {"techniques.routing.parameters", Shape::list},
                             {"techniques.routing.seed"},
                             {"techniques.routing.echo_spare_experts"},
                             {"techniques.cp_comm"},
                             {"techniques.gradient_compression"},
                             {"techniques.implementation"},
                             {"techniques.attention_backend"},
                             {"techniques.grouped_gemm"},
                             {"techniques.sequence_parallel"},
                             {"techniques.memory_efficient_permutation"},
                             {"techniques.paged_stash"},
                             {"techniques.host.processes_bound_to_cpus"},
                             {"schedule.kind"},
                             {"schedule.microbatch_group_size"}};

// model::apply_overrides' names for what a what-if would change.
constexpr std::string_view kModelFields[] = {"num_layers",   "dense_prefix_layers",
                                             "mtp_layers",   "hidden",
                                             "vocab",        "dense_ffn",
                                             "heads",        "kv_heads",
                                             "head_dim",     "q_lora_rank",
                                             "kv_lora_rank", "qk_nope_dim",
                                             "qk_rope_dim",  "v_dim",
                                             "window",       "experts",
                                             "top_k",        "expert_ffn",
                                             "shared_ffn",   "groups",
                                             "top_groups",   "tied_embeddings",
                                             "activation",   "linear_bias",
                                             "qk_norm"};

// Names people use for rates; a bare number is in GB/s.
struct RateAlias {
  std::string_view word, key;
};
constexpr RateAlias kRateAliases[] = {{"scaleup_bandwidth", "scaleup_bytes_per_s"},
                                      {"scaleout_bandwidth", "scaleout_bytes_per_s"},
                                      {"host_bandwidth", "host_bytes_per_s"},
                                      {"hbm_bandwidth", "hbm_bytes_per_s"}};

// What Megatron's users say for short.
struct ShortName {
  std::string_view word, key;
};
constexpr ShortName kShortNames[] = {{"seq", "training.sequence_length"},
                                     {"gbs", "training.global_batch_size"},
                                     {"mbs", "training.micro_batch_size"}};

bool ends_with(std::string_view text, std::string_view tail) {
  return text.size() >= tail.size() && text.substr(text.size() - tail.size()) == tail;
}

bool is_suffix(std::string_view key, std::string_view word) {
  return key == word || (key.size() > word.size() && ends_with(key, word) &&
                         key[key.size() - word.size() - 1] == '.');
}

Result<std::string> resolve(const std::string& word) {
  const std::vector<std::string> fields = settable_fields();
  std::vector<std::string> matches;
  for (const ShortName& name : kShortNames)
    if (word == name.word) return std::string(name.key);
  for (const std::string& key : fields) {
    if (key == word) return key;
    if (is_suffix(key, word)) matches.push_back(key);
  }
  if (matches.size() == 1) return matches[0];
  if (matches.size() > 1) {
    std::string text = "one of:";
    for (const std::string& key : matches) text += " " + key;
    return Error{ErrorCode::usage, fmt::format("'{}' names several fields", word), "--set", text};
  }
  std::vector<std::string_view> candidates(fields.begin(), fields.end());
  std::string hint = nearest(word, candidates);
  for (const std::string& key : fields) {
    const std::string last = key.substr(key.rfind('.') + 1);
    if (hint.empty() && !nearest(word, {last}).empty()) hint = key;
    if (edit_distance(word, last) <= 2) hint = key;
  }
  return Error{ErrorCode::usage, fmt::format("unknown field '{}'", word), "--set",
               hint.empty() ? "see settable fields in the manual" : "did you mean '" + hint + "'?"};
}

struct UnitScale {
  std::string_view unit;
  double scale;
  char kind;  // b: bytes, r: bytes/s, s: seconds, f: FLOP/s
};
constexpr double kKi = 1024, kMi = kKi * kKi, kGi = kMi * kKi, kTi = kGi * kKi;
constexpr UnitScale kUnits[] = {
    {"B", 1, 'b'},          {"KB", 1e3, 'b'},        {"MB", 1e6, 'b'},
    {"GB", 1e9, 'b'},       {"TB", 1e12, 'b'},       {"KiB", kKi, 'b'},
    {"MiB", kMi, 'b'},      {"GiB", kGi, 'b'},       {"TiB", kTi, 'b'},
    {"Mbps", 1e6 / 8, 'r'}, {"Gbps", 1e9 / 8, 'r'},  {"Tbps", 1e12 / 8, 'r'},
    {"Gb/s", 1e9 / 8, 'r'}, {"Tb/s", 1e12 / 8, 'r'}, {"MB/s", 1e6, 'r'},
    {"GB/s", 1e9, 'r'},     {"TB/s", 1e12, 'r'},     {"GBps", 1e9, 'r'},
    {"TBps", 1e12, 'r'},    {"GiB/s", kGi, 'r'},     {"TiB/s", kTi, 'r'},
    {"ns", 1e-9, 's'},      {"us", 1e-6, 's'},       {"ms", 1e-3, 's'},
    {"s", 1, 's'},          {"TFLOPS", 1e12, 'f'},   {"PFLOPS", 1e15, 'f'},
    {"TFLOP/s", 1e12, 'f'}, {"PFLOP/s", 1e15, 'f'}};

char kind_of(std::string_view key) {
  if (key.find("bytes_per_s") != std::string_view::npos) return 'r';
  if (key.find("flops_per_s") != std::string_view::npos) return 'f';
  if (key.find("_bytes") != std::string_view::npos) return 'b';
  if (ends_with(key, "_s")) return 's';
  return '-';
}

const char* unit_hint(char kind) {
  switch (kind) {
    case 'r':
      return "for example 400Gbps or 50GB/s";
    case 'b':
      return "for example 10GiB or 80GB";
    case 's':
      return "for example 25us";
    case 'f':
      return "for example 989TFLOPS";
    default:
      return "a plain number";
  }
}

Json number(double value) {
  if (value == std::floor(value) && std::abs(value) < 9e15) return static_cast<std::int64_t>(value);
  return round_significant(value, 12);
}

// A number with an optional unit; nullopt where the text does not start with a number.
Result<std::optional<Json>> read_number(const std::string& key, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !std::isfinite(value)) return std::optional<Json>();
  std::string_view unit(end);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (unit.empty()) return std::optional<Json>(number(value));
  const char kind = kind_of(key);
  for (const UnitScale& u : kUnits) {
    if (u.unit != unit) continue;
    if (u.kind == kind) return std::optional<Json>(number(value * u.scale));
    return Error{ErrorCode::usage, fmt::format("unit '{}' does not fit {}", unit, key), "--set",
                 unit_hint(kind)};
  }
  if (kind == '-') return std::optional<Json>();  // a word that begins with a digit, such as 1f1b
  return Error{ErrorCode::usage, fmt::format("unknown unit '{}'", unit), "--set", unit_hint(kind)};
}

Result<Json> read_value(const std::string& key, const std::string& text);

Result<Json> read_list(const std::string& key, const std::string& text) {
  Json list = Json::array();
  if (text.empty() || text == "none" || text == "[]") return list;
  if (text.front() == '[') return parse_json(text, "--set " + key);
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    TRIFOLD_ASSIGN(item, read_value(key, text.substr(begin, end - begin)));
    list.push_back(item);
    begin = end + 1;
  }
  return list;
}

Result<Json> read_value(const std::string& key, const std::string& text) {
  if (text == "true") return Json(true);
  if (text == "false") return Json(false);
  if (text == "null") return Json(nullptr);
  if (!text.empty() && text.front() == '{') return parse_json(text, "--set " + key);
  TRIFOLD_ASSIGN(value, read_number(key, text));
  if (value) return *value;
  return Json(text);
}

bool is_list(const std::string& key) {
  return std::any_of(std::begin(kFields), std::end(kFields),
                     [&](const Field& f) { return f.key == key && f.shape == Shape::list; });
}

Result<void> put(Json& json, const std::string& key, Json value) {
  Json* at = &json;
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t end = std::min(key.find('.', begin), key.size());
    if (at->is_null()) *at = Json::object();
    if (!at->is_object())
      return Error{ErrorCode::usage, fmt::format("cannot set {}: not an object there", key),
                   "--set", ""};
    at = &(*at)[key.substr(begin, end - begin)];
    begin = end + 1;
  }
  *at = std::move(value);
  return {};
}

}  // namespace

std::vector<std::string> settable_fields() {
  std::vector<std::string> keys;
  for (const Field& f : kFields) keys.emplace_back(f.key);
  for (std::string_view word : kModelFields) keys.push_back("model_overrides." + std::string(word));
  const Json cluster = hardware::to_json(hardware::Cluster{});
  for (const auto& item : cluster.items())
    if (item.key() != "schema" && item.key() != "name" && item.key() != "source" &&
        item.key() != "profile")
      keys.push_back("cluster_overrides." + item.key());
  return keys;
}

Result<void> set_field(Json& job_json, const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0)
    return Error{ErrorCode::usage, fmt::format("expected key=value, found '{}'", assignment),
                 "--set", "for example --set layout.ep=16"};
  std::string word = assignment.substr(0, equals), text = assignment.substr(equals + 1);
  const std::string bare = word.rfind("cluster.", 0) == 0             ? word.substr(8)
                           : word.rfind("cluster_overrides.", 0) == 0 ? word.substr(18)
                                                                      : word;
  for (const RateAlias& alias : kRateAliases) {
    if (bare != alias.word) continue;
    word = "cluster_overrides." + std::string(alias.key);
    char* end = nullptr;
    (void)std::strtod(text.c_str(), &end);
    if (*end == '\0' && end != text.c_str()) text += "GB/s";
  }
  // A named model or cluster has no fields to reach: its overrides do.
  if (word.rfind("cluster.", 0) == 0) word = "cluster_overrides." + word.substr(8);
  if (word.rfind("model.", 0) == 0) word = "model_overrides." + word.substr(6);
  TRIFOLD_ASSIGN(key, resolve(word));
  TRIFOLD_ASSIGN(value, is_list(key) ? read_list(key, text) : read_value(key, text));
  return put(job_json, key, std::move(value));
}

}  // namespace trifold::job
