// SPDX-License-Identifier: Apache-2.0
#pragma once

// A simulated step as text: the three walls of the slowest stage, what hid, the critical path by
// kind of operator, and each stage's peak with what holds it.

#include <string>

#include "timeline/timeline.h"

namespace trifold::report {

std::string timeline_text(const job::Job& job, const timeline::Timeline& timeline,
                          const estimate::Estimate& closed_form);

}  // namespace trifold::report
