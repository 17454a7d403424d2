// SPDX-License-Identifier: Apache-2.0
#include "launch/import.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "launch/importer.h"
#include "model/catalogue.h"

namespace trifold::launch {
namespace {

// Flags whose value no prediction of time or memory uses, by their beginning.
constexpr std::string_view kNoEffect[] = {"--lr",
                                          "--min-lr",
                                          "--weight-decay",
                                          "--start-weight-decay",
                                          "--end-weight-decay",
                                          "--clip-grad",
                                          "--adam-",
                                          "--muon-",
                                          "--sgd-",
                                          "--save",
                                          "--load",
                                          "--ckpt-",
                                          "--dist-ckpt",
                                          "--use-dist-ckpt",
                                          "--async-save",
                                          "--log-",
                                          "--tensorboard-",
                                          "--wandb-",
                                          "--data-path",
                                          "--data-args",
                                          "--data-cache",
                                          "--train-",
                                          "--valid-",
                                          "--test-",
                                          "--split",
                                          "--mock-data",
                                          "--tokenizer-",
                                          "--vocab-file",
                                          "--merge-file",
                                          "--vocab-extra",
                                          "--eval-",
                                          "--exit-",
                                          "--seed",
                                          "--distributed-",
                                          "--manual-gc",
                                          "--no-mmap",
                                          "--num-workers",
                                          "--num-dataset",
                                          "--use-mcore-models",
                                          "--use-flash-attn",
                                          "--dataloader-type",
                                          "--timing-",
                                          "--profile",
                                          "--rerun-",
                                          "--no-load",
                                          "--no-save",
                                          "--no-check-for-nan",
                                          "--check-for-nan",
                                          "--check-weight",
                                          "--attention-backend",
                                          "--attention-dropout",
                                          "--hidden-dropout",
                                          "--override-",
                                          "--use-checkpoint",
                                          "--finetune",
                                          "--no-create-attention-mask",
                                          "--reset-",
                                          "--eod-",
                                          "--te-rng",
                                          "--no-bias-swiglu-fusion",
                                          "--make-vocab-size",
                                          "--auto-detect",
                                          "--non-persistent",
                                          "--no-ckpt",
                                          "--trust-remote",
                                          "--one-logger",
                                          "--enable-one-logger",
                                          "--record-memory",
                                          "--memory-snapshot",
                                          "--logging-",
                                          "--decoupled-",
                                          "--enable-experimental",
                                          "--no-weight-decay",
                                          "--bf16"};

bool at_default(const Argument& argument) {
  const Flag* flag = find_flag(argument.flag);
  return flag != nullptr && flag->arity == 1 && argument.values.size() == 1 &&
         argument.values[0] == flag->fallback;
}

std::string words(const Argument& argument) {
  std::string text = argument.flag;
  for (const std::string& value : argument.values) text += " " + value;
  return text;
}

void list_the_rest(Importer& in) {
  for (const Argument& argument : in.settings.arguments().items) {
    if (in.used.count(argument.flag) > 0) continue;
    const std::string text = Importer::line_of(argument) + words(argument);
    if (find_flag(argument.flag) == nullptr)
      in.lost(text + ": no flag of Megatron");
    else if (has_no_effect(argument.flag) || at_default(argument))
      in.result.no_effect.push_back(text);
    else
      in.lost(text);
  }
}

Result<void> sensible(const job::Job& job, const std::string& file) {
  TRIFOLD_TRY(model::validate(job.model, file));
  const job::Training& t = job.training;
  if (t.micro_batch_size < 1 || t.global_batch_size < 1 || t.sequence_length < 1)
    return input_error("batch sizes and sequence length must be positive", file);
  return {};
}

}  // namespace

bool has_no_effect(std::string_view flag) {
  return std::any_of(std::begin(kNoEffect), std::end(kNoEffect), [&](std::string_view prefix) {
    return flag.substr(0, prefix.size()) == prefix;
  });
}

std::int64_t Importer::integer(const char* flag, std::int64_t otherwise) {
  const std::string value = text(flag);
  if (value.empty()) return otherwise;
  char* end = nullptr;
  const std::int64_t read = std::strtoll(value.c_str(), &end, 10);
  if (*end != '\0')
    fail_at(*settings.arguments().find(flag),
            fmt::format("{} {}: not a whole number", flag, value));
  return read;
}

int Importer::size(const char* flag, std::int64_t otherwise) {
  constexpr std::int64_t kMost = 1 << 20;
  const std::int64_t read = integer(flag, otherwise);
  if (read < std::min<std::int64_t>(1, otherwise) || read > kMost) {
    const Argument* argument = settings.arguments().find(flag);
    fail_at(argument != nullptr ? *argument : Argument{},
            fmt::format("{} {} is outside {}..{}", flag, read, std::min<std::int64_t>(1, otherwise),
                        kMost));
    return 1;
  }
  return static_cast<int>(read);
}

double Importer::real(const char* flag, double otherwise) {
  const std::string value = text(flag);
  if (value.empty()) return otherwise;
  char* end = nullptr;
  const double read = std::strtod(value.c_str(), &end);
  if (*end != '\0')
    fail_at(*settings.arguments().find(flag), fmt::format("{} {}: not a number", flag, value));
  return read;
}

std::int64_t Importer::need(const char* flag) {
  if (!settings.has(flag)) fail(std::string(flag) + " is missing");
  return integer(flag);
}

void Importer::fail(std::string message, std::string hint) {
  if (!error) error = input_error(std::move(message), options.file, std::move(hint));
}

void Importer::fail_at(const Argument& argument, std::string message, std::string hint) {
  if (!error)
    error = input_error(std::move(message), place(options.file, argument.line), std::move(hint));
}

std::string Importer::line_of(const Argument& argument) {
  return argument.line > 0 ? fmt::format("line {}: ", argument.line) : std::string();
}

job::Job normal_form(job::Job job) {
  layout::Layout& l = job.layout;
  if (l.ulysses_sp > 1 && l.cp == 1) {
    l.cp = l.ulysses_sp;
    l.ulysses_sp = 1;
    job.techniques.cp_comm = job::CpComm::a2a;
  } else if (l.ulysses_sp > 1 || l.cp == 1) {
    job.techniques.cp_comm = job::CpComm::p2p;  // says nothing there
  }
  if (l.fsdp) job.training.optimizer.distributed = true;
  return job;
}

Result<Imported> import_arguments(const Arguments& arguments, const ImportOptions& options) {
  Importer in(arguments, options);
  in.result.job.cluster = options.cluster;
  in.result.job.gpus = static_cast<int>(options.gpus);
  check_input(in);
  if (in.error) return *in.error;
  import_model(in);
  import_training(in);
  import_layout(in);
  import_techniques(in);
  list_the_rest(in);
  if (in.error) return *in.error;
  TRIFOLD_TRY(sensible(in.result.job, options.file));
  return std::move(in.result);
}

Result<Imported> import_script(const LaunchScript& script, const ImportOptions& options) {
  TRIFOLD_ASSIGN(imported, import_arguments(script.arguments, options));
  std::vector<std::string> open = script.not_understood;
  for (const Argument& argument : script.unresolved) {
    const std::string text =
        Importer::line_of(argument) + words(argument) + ": known only when the script runs";
    (has_no_effect(argument.flag) ? imported.no_effect : open).push_back(text);
  }
  imported.not_understood.insert(imported.not_understood.begin(), open.begin(), open.end());
  return imported;
}

}  // namespace trifold::launch
