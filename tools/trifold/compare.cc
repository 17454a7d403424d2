// SPDX-License-Identifier: Apache-2.0

// trifold compare plan.json train.log: where prediction and run differ, and what could explain it.

#include <fmt/format.h>

#include "base/table.h"
#include "cli.h"
#include "estimate/estimate.h"
#include "job/profile.h"
#include "launch/compare.h"

namespace trifold::cli {

namespace {

struct Options {
  std::string plan, log, id, profile_out;
  std::vector<std::string> sets;
  bool json = false;
};

launch::Prediction prediction_of(const job::Job& job, const estimate::Estimate& e) {
  launch::Prediction p;
  p.plan_id = job::job_id(job);
  p.gpus = job.gpus, p.tp = job.layout.tp, p.cp = job.layout.sequence_ranks(), p.pp = job.layout.pp;
  p.global_batch = job.training.global_batch_size;
  p.step_time_s = e.step_time_s, p.low_s = e.low_s, p.high_s = e.high_s;
  p.tflops_per_gpu = e.tflops_per_gpu;
  // Megatron reports data-parallel rank 0 of the first stage.
  p.peak_bytes = static_cast<double>(e.memory.stages.front().peak.value());
  p.reserved_bytes = static_cast<double>(e.memory.stages.front().reserved.value());
  p.terms = {{"compute", e.time.compute},
             {"recompute", e.time.recompute},
             {"bubble", e.time.bubble},
             {"host", e.time.host},
             {"optimizer", e.time.optimizer}};
  for (std::size_t i = 0; i < estimate::kComms; ++i)
    p.terms.push_back({fmt::format("exposed {}", estimate::kCommNames[i]), e.time.exposed[i]});
  return p;
}

Json to_json(const launch::Comparison& c) {
  Json deviations = Json::array(), suspects = Json::array();
  for (const launch::Deviation& d : c.deviations)
    deviations.push_back({{"what", d.what},
                          {"unit", d.unit},
                          {"predicted", d.predicted},
                          {"measured", d.measured},
                          {"relative", d.relative()}});
  for (const launch::Suspect& s : c.suspects)
    suspects.push_back({{"name", s.name}, {"seconds", s.seconds}, {"times", s.times}});
  return {{"schema", "trifold.comparison/1"},
          {"iterations", c.steady},
          {"inside_interval", c.inside},
          {"deviations", deviations},
          {"suspects", suspects},
          {"notes", c.notes},
          {"time_factor", c.time_factor},
          {"memory_factor", c.memory_factor}};
}

std::string text_of(const launch::Comparison& c) {
  Table table({"", "predicted", "measured", "measured/predicted - 1"});
  for (const launch::Deviation& d : c.deviations)
    table.add({fmt::format("{} ({})", d.what, d.unit), fmt::format("{:.4g}", d.predicted),
               fmt::format("{:.4g}", d.measured), fmt::format("{:+.1f} %", 100 * d.relative())});
  std::string text =
      table.text() +
      fmt::format(
          "{} steady iterations ({} of warm-up left out); the median is {} the 80 % interval\n",
          c.steady, c.warmup, c.inside ? "inside" : "OUTSIDE");
  for (const launch::Suspect& s : c.suspects)
    text += fmt::format("  {} alone would explain it at {:.2f} x its predicted {}\n", s.name,
                        s.times, human_seconds(s.seconds));
  for (const std::string& note : c.notes) text += "  note: " + note + "\n";
  return text;
}

// What a slower or faster machine is: how each constant moves with the time of its work.
struct SiteConstant {
  const char* key;
  bool is_rate;  // an efficiency: time is its inverse
};
constexpr SiteConstant kSite[] = {{"gemm_sustained_factor", false},
                                  {"attention_sustained_factor", false},
                                  {"hbm_efficiency", true}};

// Every site constant moved so that its work takes `times` as long, with where that came from.
hardware::Profile corrected(const hardware::Profile& profile, double times,
                            const std::string& source) {
  hardware::Profile out = profile;
  for (const SiteConstant& c : kSite) {
    const hardware::ConstantSpec& spec = hardware::constant_spec(c.key);
    const double value =
        c.is_rate ? profile.constant(c.key) / times : profile.constant(c.key) * times;
    out.constants[c.key] = {value, spec.low, spec.high, true, hardware::Basis::measured, source};
  }
  return out;
}

// One slowdown of the constants above with which the prediction meets the log, within their
// physical ranges.
Result<void> update_profile(const Context& context, const job::Job& job, const Options& options,
                            const launch::Comparison& c) {
  TRIFOLD_ASSIGN(profile,
                 hardware::load_profile(job.profile.empty() ? job.cluster.profile : job.profile,
                                        context.data_dir));
  TRIFOLD_ASSIGN(here, job::profile_of(job, context.data_dir));
  TRIFOLD_ASSIGN(pipeline, layout::build_pipeline(job.model, job.layout, job.placement()));
  const auto step = [&](double times) {
    const hardware::Profile moved = corrected(here, times, "");
    estimate::Estimator estimator(job.cluster, moved);
    estimate::Estimate e;
    estimator.evaluate_time(job, pipeline, e);
    return e.step_time_s;
  };
  double low = 1e-3, high = 1e3;
  for (const SiteConstant& s : kSite) {
    const hardware::ConstantSpec& spec = hardware::constant_spec(s.key);
    const double value = profile.constant(s.key);
    low = std::max(low, s.is_rate ? value / spec.high : spec.low / value);
    high = std::min(high, s.is_rate ? value / spec.low : spec.high / value);
  }
  const double measured = c.time_factor * step(1);
  const double shortest = step(low), longest = step(high);
  if (measured < shortest || measured > longest)
    return input_error(
        fmt::format("{} measured, and the clocks' physical range reaches {} to {}",
                    human_seconds(measured), human_seconds(shortest), human_seconds(longest)),
        options.log, "something other than clocks differs; look at the suspects first");
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (step(middle) < measured ? low : high) = middle;
  }
  profile = corrected(profile, high,
                      fmt::format("site correction x{:.3f}: {} ran x{:.3f} the predicted step ({} "
                                  "iterations of job {})",
                                  high, options.log, c.time_factor, c.steady, job::job_id(job)));
  profile.name += "-site";
  return write_text(options.profile_out, hardware::dump_profile(profile));
}

Result<std::string> compare(const Context& context, const Options& options) {
  TRIFOLD_ASSIGN(job, load_job(context, options.plan, options.id, options.sets));
  TRIFOLD_ASSIGN(estimate, estimate::estimate_job(job, context.data_dir));
  TRIFOLD_ASSIGN(log_text, read_text(options.log));
  TRIFOLD_ASSIGN(log, launch::read_training_log(log_text, options.log));
  TRIFOLD_ASSIGN(comparison, launch::compare(prediction_of(job, estimate), log));
  if (!options.profile_out.empty()) TRIFOLD_TRY(update_profile(context, job, options, comparison));
  return options.json ? dump_json(to_json(comparison)) : text_of(comparison);
}

}  // namespace

void add_compare(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("compare", "a plan against the log of its run");
  verb->add_option("plan", options->plan, "plan.json or a Job file")->required();
  verb->add_option("log", options->log, "Megatron's standard output")->required();
  verb->add_option("--set", options->sets, "override a field of the plan");
  verb->add_option("--id", options->id, "which record, when the file holds a list");
  verb->add_option("--update-profile", options->profile_out,
                   "write a profile with this site's correction here");
  verb->add_flag("--json", options->json, "for machines");
  verb->footer(
      "Examples:\n  trifold compare run/plan.json train.log\n  trifold compare run/plan.json "
      "train.log --update-profile site.profile.json\n");
  verb->callback([&context, options] {
    context.run = [&context, options] {
      Result<std::string> text = compare(context, *options);
      if (!text) return report(text.error());
      print(*text);
      return static_cast<int>(kDone);
    };
  });
}

}  // namespace trifold::cli
