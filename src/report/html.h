// SPDX-License-Identifier: Apache-2.0
#pragma once

// One self-contained HTML file: the built page (web/dist/report.html, part of this program) with
// the data in it. Nothing is fetched; the page's own policy forbids it.

#include <string>

#include "base/json.h"

namespace trifold::report {

// The file, from data as page_data() gives it. Every '<' of the data is escaped, so that no string
// of a model or a path can end the data's element. Slices and memory curves are packed
// (pack_page).
std::string html_page(const Json& data);

// The long columns of trifold.page/1 as base64 of varints, a tenth of their size in JSON:
//   timeline.slices -> timeline.packed {"unit_ns", "rows": [[stage, stream, slices], ...],
//     "kinds": [[category, name, chunk, work], ...], "data"}: for each slice of each row its kind,
//     then zigzag differences of micro-batch and of start to the end before, then duration;
//   memory.curves[] -> {"stage", "unit_s", "unit_bytes", "data"}: zigzag differences of time and
//     bytes, from 0;
//   whatif.points[] -> numbers of each point's estimate, without its stages.
// Times are kept to unit_ns, at most a 2^-26 part of the step.
Json pack_page(const Json& data);

}  // namespace trifold::report
