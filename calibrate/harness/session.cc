// SPDX-License-Identifier: Apache-2.0
#include "calibrate/harness/session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "base/random.h"
#include "calibrate/harness/journal.h"
#include "calibrate/harness/progress.h"

namespace trifold::calibrate {
namespace {

using Clock = std::chrono::steady_clock;

fit::PointsFile header_of(Rank& rank) {
  const Device& d = rank.device;
  fit::PointsFile header;
  header.provenance.gpu = d.name;
  header.provenance.driver = d.driver;
  header.provenance.cuda = d.cuda;
  header.provenance.cublas = d.cublas;
  header.provenance.nccl = d.nccl;
  char date[16] = {};
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::strftime(date, sizeof(date), "%Y-%m-%d", &parts);
  header.provenance.date = date;
  header.provenance.source = "trifold calibrate " TRIFOLD_VERSION;
  header.provenance.commit = rank.options->commit;
  header.gpus = rank.control.world();
  header.gpu_uuid_hash = d.uuid_hash;
  header.topology = std::to_string(rank.control.world()) + " ranks, " +
                    (rank.one_process ? "one process" : "a process a GPU") + ", NVLS off, " +
                    std::to_string(d.sms) + " SMs, L2 " + std::to_string(d.l2_bytes >> 20) + " MiB";
  return header;
}

const char* family_name(const Job& job) {
  return token_name(fit::kPointFamilies, job.question.family).data();
}

std::vector<Job> make_jobs(Rank& rank, Summary& summary) {
  std::vector<Job> jobs;
  add_gemm_jobs(jobs, rank.device.sms);
  add_grouped_jobs(jobs);
  add_memory_jobs(jobs);
  add_attention_jobs(jobs, summary.skipped);
  add_host_jobs(jobs, static_cast<int>(rank.peers.size()));
  if (rank.control.world() > 1)
    add_collective_jobs(jobs, rank.control.world(), rank.one_process);
  else
    summary.skipped.push_back("collective: one rank");
  add_overlap_jobs(jobs, rank.control.world(), rank.device.sms);
  const std::vector<std::string>& wanted = rank.options->families;
  jobs.erase(std::remove_if(jobs.begin(), jobs.end(),
                            [&](const Job& job) {
                              if (rank.options->quick && job.priority > 0) return true;
                              return !wanted.empty() && std::find(wanted.begin(), wanted.end(),
                                                                  family_name(job)) == wanted.end();
                            }),
             jobs.end());
  return jobs;
}

// Every so many jobs of a family that is fitted by shape, once more: how far two turns of the same
// shape differ is what no fit can go below.
std::vector<Job> repeats_of(const std::vector<Job>& jobs) {
  constexpr std::size_t kEvery = 20;
  std::vector<Job> repeats;
  std::map<PointFamily, std::size_t> seen;
  for (const Job& job : jobs) {
    const PointFamily family = job.question.family;
    if (family == PointFamily::overlap || family == PointFamily::host) continue;
    if (seen[family]++ % kEvery != kEvery / 2) continue;
    repeats.push_back(job);
    repeats.back().repeat = true;
  }
  return repeats;
}

// Shuffled inside each priority, then the repeats; anchors at the start, the middle and the end.
std::vector<Job> in_order(std::vector<Job> jobs, std::uint64_t seed) {
  std::vector<Job> anchors;
  for (const Job& job : jobs)
    if (job.anchor) anchors.push_back(job);
  for (Job& job : jobs) job.anchor = false;
  Random random(seed);
  for (std::size_t i = jobs.size(); i > 1; --i) std::swap(jobs[i - 1], jobs[random.below(i)]);
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const Job& a, const Job& b) { return a.priority < b.priority; });
  std::vector<Job> order = anchors;
  order.insert(order.end(), jobs.begin(), jobs.begin() + static_cast<long>(jobs.size() / 2));
  order.insert(order.end(), anchors.begin(), anchors.end());
  order.insert(order.end(), jobs.begin() + static_cast<long>(jobs.size() / 2), jobs.end());
  const std::vector<Job> repeats = repeats_of(jobs);
  order.insert(order.end(), repeats.begin(), repeats.end());
  order.insert(order.end(), anchors.begin(), anchors.end());
  return order;
}

struct Drift {
  std::map<std::string, std::vector<double>> us;
  double worst() const {
    double top = 0;
    for (const auto& [key, values] : us)
      for (double v : values) top = std::max(top, std::fabs(v / values.front() - 1));
    return top;
  }
};

class Runner {
 public:
  Runner(Rank& rank, Summary& summary) : rank_(rank), summary_(summary) {}

  Result<void> run(const std::vector<Job>& jobs) {
    TRIFOLD_TRY(open_journal());
    TRIFOLD_ASSIGN(done, done_jobs(jobs));
    const double budget = rank_.options->budget_s > 0 ? rank_.options->budget_s
                          : rank_.options->quick      ? 110.0
                                                      : 460.0;
    Progress progress(rank_.options->progress && rank_.lead(), static_cast<int>(jobs.size()));
    const auto start = Clock::now();
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      progress.step(std::string(family_name(jobs[i])) + " " + jobs[i].question.op + " " +
                    jobs[i].question.variant);
      if (done[i] != 0) continue;
      // Anchors close the run even when the budget is spent.
      const std::chrono::duration<double> elapsed = Clock::now() - start;
      const bool spent = elapsed.count() > budget && !jobs[i].anchor;
      if (!jobs[i].collective) {
        if (rank_.lead() && !spent) TRIFOLD_TRY(one(jobs[i]));
        if (spent) summary_.budget_spent = true;
        continue;
      }
      TRIFOLD_ASSIGN(go, rank_.control.all(!spent));  // rank 0's budget and everybody's
      if (!go) {
        summary_.budget_spent = true;
        continue;
      }
      TRIFOLD_TRY(one(jobs[i]));
    }
    summary_.worst_drift = drift_.worst();
    summary_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return rank_.control.barrier();
  }

 private:
  Result<void> open_journal() {
    // Rank 0 owns the file; the others wait for its verdict, so that an error there ends all.
    Result<void> opened;
    if (rank_.lead()) {
      Result<Journal> journal =
          Journal::open(rank_.options->output, header_of(rank_), rank_.options->restart);
      if (journal)
        journal_ = std::move(*journal);
      else
        opened = std::move(journal).error();
    }
    TRIFOLD_ASSIGN(fine, rank_.control.all(opened.has_value()));
    if (!opened) return opened;
    if (!fine) return Error{ErrorCode::input, "rank 0 cannot use the points file", "", ""};
    summary_.resumed = journal_.resumed();
    return {};
  }

  Result<std::vector<std::uint8_t>> done_jobs(const std::vector<Job>& jobs) {
    std::vector<std::uint8_t> done;
    if (rank_.lead())
      for (const Job& job : jobs)
        done.push_back(!job.anchor && journal_.holds(job.question, job.repeat ? 2 : 1));
    done.resize(jobs.size());
    TRIFOLD_TRY(rank_.control.broadcast(done));
    return done;
  }

  Result<void> one(const Job& job) {
    rank_.device.arena.reset();
    Result<std::vector<Point>> points = job.run(rank_);
    if (!points) {
      if (!is_skip(points.error())) return std::move(points).error();
      if (rank_.lead())
        summary_.skipped.push_back(fit::point_line(job.question) + ": " + points.error().message);
      return {};
    }
    if (!rank_.lead()) return {};
    for (Point& point : *points) {
      if (job.anchor) {
        point.flags.insert(PointFlag::anchor);
        drift_.us[point_key(point)].push_back(point.us);
      }
      summary_.bad += point.flags.contains(PointFlag::bad);
      summary_.throttled += point.flags.contains(PointFlag::throttled);
      summary_.unstable += point.flags.contains(PointFlag::unstable);
      ++summary_.measured;
      TRIFOLD_TRY(journal_.append(point));
    }
    return {};
  }

  Rank& rank_;
  Summary& summary_;
  Journal journal_;
  Drift drift_;
};

}  // namespace

Team Rank::team() {
  Team t;
  t.control = &control;
  if (control.world() > 1) t.align = [this](cudaStream_t s) { return world.align(s); };
  return t;
}

Point question(PointFamily family, std::string op, std::string variant, hardware::Dtype dtype,
               std::array<double, 4> shape) {
  Point p;
  p.family = family;
  p.op = std::move(op);
  p.variant = std::move(variant);
  p.dtype = dtype;
  p.shape = shape;
  return p;
}

Point answer(Point p, const Measurement& m) {
  p.us = m.us;
  p.us_p10 = m.us_p10;
  p.us_p90 = m.us_p90;
  p.samples = m.samples;
  p.clock_mhz = m.clock_mhz;
  if (m.throttled) p.flags.insert(PointFlag::throttled);
  if (m.unstable) p.flags.insert(PointFlag::unstable);
  return p;
}

Result<Summary> run_points(Rank& rank) {
  if (rank.options->output.empty())
    return Error{ErrorCode::usage, "no points file given", "output", ""};
  Summary summary;
  summary.output = rank.options->output;
  Result<Summary> checks = Summary{};
  if (rank.lead()) checks = check_kernels(rank);
  TRIFOLD_ASSIGN(checked, rank.control.all(checks.has_value()));
  if (!checks) return checks;
  if (!checked) return Error{ErrorCode::environment, "rank 0 failed its kernel checks", "", ""};
  summary.lines = checks->lines;
  const std::vector<Job> jobs = in_order(make_jobs(rank, summary), rank.options->seed);
  Runner runner(rank, summary);
  TRIFOLD_TRY(runner.run(jobs));
  return summary;
}

}  // namespace trifold::calibrate
