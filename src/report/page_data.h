// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the page of `trifold report` shows, as one JSON object: native code computes it, the page
// draws it. No prose is computed in JavaScript and nothing here is markup: every string is plain
// text for the page to escape. Keys carry their unit; NaN and infinities are null.
//
// {
//   "schema": "trifold.page/1",
//   "title": "deepseek-v3 on 1,024 x dgx-h100",
//   "provenance": {"version": "0.1.0", "command": "trifold report ...", "job_id": "9f..",
//                  "model": "deepseek-v3", "cluster": "dgx-h100", "profile": "h100",
//                  "profile_source": {"gpu": "..", "date": "..", "source": "..", ...}},
//   "inputs": {"job": Job JSON with model, cluster and their overrides INLINE (no catalogue file is
//              needed to read it again; for the worker),
//              "profile": Profile JSON (trifold.profile/1), "fields": ["layout.tp", ...]},
//   "estimate": trifold.estimate/1 of the shown Job (numbers of `trifold estimate --json`),
//   "candidates": [CANDIDATE, ...],    // [0] is the shown Job; those that do not fit or are
//   illegal
//                                      // carry a reason and stay in the table and the scatter
//   "timeline": null | {"method": "simulated", "step_time_s": 1.2, "stages": 8,
//                "streams": ["compute", ...], "categories": ["compute", ...], "names": ["fc1",
//                ...], "total_slices": 812345, "merged": true,   // neighbours of one unit were
//                joined "slices": {"stage": [..], "stream": [..], "category": [..], "name": [..],
//                           "microbatch": [..], "chunk": [..], "work": [..], "start_ns": [..],
//                           "duration_ns": [..]},          // columns of equal length, by
//                                                          // stage, stream, start; name, stream,
//                                                          // category, work are indices into lists
//                "work": ["forward", "backward", "wgrad", "merged"],
//                "microbatches": 64, "microbatches_shown": 64,   // the first and the last of them
//                "omitted_s": [[from, to], ...],   // by stage, where the others ran; else empty
//                "hidden_share": 0.8, "critical_path_s": {"compute": .., "ep": .., ...}},
//   "memory": {"capacity_bytes": .., "stages": [as estimate.memory.stages],
//              "curves": [{"stage": 0, "time_s": [..], "bytes": [..]}, ...],    // steps
//              "terms": [{"stage": 0, "part": "weights", "name": "..", "formula": "..",
//                         "divisor": "..", "bytes": ..}, ...]},                // worst stage
//   "sweeps": [{"key": "layout.ep", "label": "ep", "unit": "", "points": [SWEEP_POINT, ...]}, ...],
//   "heatmap": {"x_key": "layout.ep", "y_key": "layout.pp", "x": [1, 2, ..], "y": [..],
//               "cells": [{"x": 8, "y": 4, "step_time_s": null|.., "headroom_bytes": null|..,
//                          "status": STATUS, "reason": ".."}, ...]},           // row-major by y
//   "icicle": NODE,    // {"name", "parameters", "bytes"?, "children"?}: the whole model by part,
//                      // then "memory of the worst stage" by part and term
//   "ranks": {"gpus": 1024, "shown": 1024, "gpus_per_node": 8, "domain_gpus": 8,
//             "columns": {"rank": [..], "node": [..], "domain": [..], "tp": [..], "cp": [..],
//                         "dp": [..], "pp": [..], "etp": [..], "ep": [..], "edp": [..]}},
//   "ladder": trifold.explain/1 (planner/ladder.h),
//   "sensitivity": [as trifold.whatif/1 sensitivity (planner/sensitivity.h)],
//   "controls": [{"key": "layout.ep", "label": "EP", "kind": "choice"|"range"|"set",
//                 "values": [1, 2, ..] , "low", "high", "value", "unit",
//                 "with"?: ["key=value", ..] (assignments that go with it)}, ...],
//   "whatif": null | trifold.whatif/1 as it was given,
//   "confidence": {"sigma": 0.07, "interval": [low_s, high_s], "basis_share": {"measured": ..},
//                  "text": "..."}
// }
//
// CANDIDATE: {"id": "..", "label": "plan 1", "group": "plan"|"geometry"|"not launchable"|"what-if"|
//   "neighbour" (one change away)|"rejected" (the same, but it does not fit or is illegal),
//   "layout": "tp 2 cp 1 ...", "techniques": "...", "axes": {"tp": 2, "cp": 1, "pp": 8,
//   "vpp": 4, "ep": 64, "etp": 1, "dp": 64, "edp": 2, "micro_batch_size": 1},
//   "status": STATUS, "reason": "", "step_time_s": {"value", "low", "high"},
//   "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "peak_bytes", "headroom_bytes",
//   "walls_s": {"compute", "recompute", "communication", "bubble", "host", "optimizer"},
//   "exposed_s": {"ep", "tp", "cp", "pp", "dp"}, "total_s": {same}, "wall": "communication",
//   "tie": false}; the numbers are null where the status is "illegal".
// SWEEP_POINT: {"value": number|string, "status": STATUS, "reason": "", "step_time_s", "low_s",
//   "high_s", "ep_total_share", "ep_exposed_share", "communication_exposed_share", "bubble_share",
//   "peak_bytes", "headroom_bytes", "tokens_per_s_per_gpu"}; numbers null where "illegal".
// STATUS: "fits" | "out_of_memory" | "not_launchable" (fits, but Megatron refuses it) | "illegal".
//
// trifold.whatif/1 (report/whatif_text.h): {"schema", "base": {"job", "estimate", "verdict"},
//   "vary": [{"key": "layout.ep", "values": ["8", ..]}], "replan": false,
//   "points": [{"vary": {"layout.ep": "8"}, "estimate": trifold.estimate/1|null,
//               "verdict": {"status": STATUS, "rule": "GRID-01"|null, "reason": "", "fix": ""},
//               "layout": "..", "job_id": ".."}],
//   "sensitivity"?: [...], "until"?: {...}, "risk"?: {...}}.

#include <string>

#include "base/json.h"
#include "hardware/profile.h"
#include "job/job.h"

namespace trifold::report {

struct PageInput {
  std::string title;    // empty: made from model and cluster
  std::string command;  // for provenance
  job::Job job;         // the one that is shown
  Json plans;           // trifold.plans/1, or null
  Json whatif;          // trifold.whatif/1, or null
  std::string data_dir;
  // Of the timeline, about 7 bytes of the page each; above it neighbours are merged, then the
  // middle micro-batches dropped.
  int most_slices = 10000;
};

// An illegal Job is an error that explains.
Result<Json> page_data(const PageInput& input, const hardware::Profile& profile);

}  // namespace trifold::report
