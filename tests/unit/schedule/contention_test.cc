// SPDX-License-Identifier: Apache-2.0
// The contention model against shared/data/h200x2/overlap.csv: fitted on the even rows, reported on
// the odd ones. Mean absolute error of the time beside the other, compute and communication.
#include "schedule/contention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace trifold::schedule {
namespace {

constexpr double kSmCount = 132, kHbmRate = 4.8e12, kDefaultCtas = 24;

struct Row {
  std::string comp, comm;
  double bytes = 0, ctas = 0, target = 0, comp_us = 0, comm_us = 0, comp_ov = 0, comm_ov = 0;
};

std::vector<Row> read_rows() {
  std::ifstream in(std::string(TRIFOLD_SOURCE_DIR) + "/../shared/data/h200x2/overlap.csv");
  std::vector<Row> rows;
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> cell;
    std::stringstream cells(line);
    for (std::string c; std::getline(cells, c, ',');) cell.push_back(c);
    if (cell.size() != 13 || cell[0] == "comp") continue;
    Row r{cell[0], cell[1]};
    r.bytes = std::stod(cell[2]), r.ctas = std::stod(cell[4]), r.target = std::stod(cell[5]);
    r.comp_us = std::stod(cell[6]), r.comm_us = std::stod(cell[7]);
    r.comp_ov = std::stod(cell[8]), r.comm_ov = std::stod(cell[9]);
    rows.push_back(r);
  }
  return rows;
}

Beside predict(const Contention& c, const Row& r) {
  sim::Load compute = memory_load(c);
  if (r.comp.rfind("gemm", 0) == 0) {
    double m = 0, n = 0, k = 0;
    std::sscanf(r.comp.c_str(), "gemm%lfx%lfx%lf", &m, &n, &k);
    const double tiles = std::ceil(m / 128) * std::ceil(n / 256);
    compute = gemm_load(c, tiles, r.target > 0 ? r.target : kSmCount, kSmCount);
  }
  const bool engine = r.comm == "D2H" || r.comm == "H2D" || r.comm == "ce_p2p";
  const Resource link = r.comm == "D2H" || r.comm == "H2D" ? kToHost : kScaleUp;
  const double ctas = engine ? 0 : r.ctas > 0 ? r.ctas : kDefaultCtas;
  const double hbm = 2 * r.bytes / (r.comm_us * 1e-6) / kHbmRate;  // read here, written here
  return run_beside(compute, r.comp_us * 1e-6, transfer_load(c, link, ctas, kSmCount, hbm),
                    r.comm_us * 1e-6);
}

struct Errors {
  double compute = 0, transfer = 0;
  int rows = 0;
  double mean() const { return (compute + transfer) / 2; }
};

Errors errors(const Contention& c, const std::vector<Row>& rows, int parity, bool print = false) {
  Errors e;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (parity >= 0 && static_cast<int>(i % 2) != parity) continue;
    const Beside b = predict(c, rows[i]);
    const double x = b.compute_s * 1e6 / rows[i].comp_ov - 1,
                 y = b.transfer_s * 1e6 / rows[i].comm_ov - 1;
    e.compute += std::abs(x), e.transfer += std::abs(y), ++e.rows;
    if (print)
      std::printf(
          "%-22s %-14s ctas %3.0f target %3.0f  compute %7.1f %+5.1f%%  comm %7.1f %+5.1f%%\n",
          rows[i].comp.c_str(), rows[i].comm.c_str(), rows[i].ctas, rows[i].target, rows[i].comp_ov,
          100 * x, rows[i].comm_ov, 100 * y);
  }
  e.compute /= e.rows, e.transfer /= e.rows;
  return e;
}

// Coordinate descent over the five continuous parameters.
Contention fit(const std::vector<Row>& rows) {
  Contention c;
  double* const parameters[] = {&c.gemm_hbm, &c.latency_hbm, &c.gemm_link, &c.memory_hbm, &c.wave};
  const double low[] = {0.02, 0, 0, 0.5, 0}, high[] = {0.6, 6, 0.4, 1, 1};
  double best = errors(c, rows, 0).mean();
  for (double step : {0.5, 0.25, 0.12, 0.06, 0.5, 0.25, 0.12, 0.06, 0.03, 0.015})
    for (int i = 0; i < 5; ++i)
      for (const double factor : {1 - step, 1 / (1 - step)}) {
        const double old = *parameters[i];
        *parameters[i] = std::min(high[i], std::max(low[i], old * factor));
        const double now = errors(c, rows, 0).mean();
        if (now < best)
          best = now;
        else
          *parameters[i] = old;
      }
  return c;
}

TEST(Contention, ReproducesMeasuredOverlap) {
  const std::vector<Row> rows = read_rows();
  if (rows.empty()) GTEST_SKIP() << "shared/data/h200x2/overlap.csv is not here";
  const Contention fitted = fit(rows);
  const Errors trained = errors(fitted, rows, 0), held_out = errors(fitted, rows, 1);
  std::printf("fitted: gemm_hbm %.3f latency_hbm %.2f gemm_link %.3f memory_hbm %.2f wave %.2f\n",
              fitted.gemm_hbm, fitted.latency_hbm, fitted.gemm_link, fitted.memory_hbm,
              fitted.wave);
  std::printf(
      "fitted half: compute %.1f%% comm %.1f%%; held out (%d rows): compute %.1f%% comm %.1f%%\n",
      100 * trained.compute, 100 * trained.transfer, held_out.rows, 100 * held_out.compute,
      100 * held_out.transfer);
  errors(fitted, rows, -1, true);
  EXPECT_LE(held_out.compute, 0.15);
  EXPECT_LE(held_out.transfer, 0.15);
  const Errors shipped = errors(Contention{}, rows, 1);
  std::printf("shipped, held out: compute %.1f%% comm %.1f%%\n", 100 * shipped.compute,
              100 * shipped.transfer);
  EXPECT_LE(shipped.compute, 0.15);
  EXPECT_LE(shipped.transfer, 0.15);
}

}  // namespace
}  // namespace trifold::schedule
