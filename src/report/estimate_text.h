// SPDX-License-Identifier: Apache-2.0
#pragma once

// An Estimate as text: the headline, the three walls, communication by kind, memory by stage, how
// it was known.

#include <string>

#include "estimate/estimate.h"

namespace trifold::report {

// "tp 2 cp 1 pp 8 vpp 4 ep 64 etp 1 (dp 64, edp 2), micro-batch 1"
std::string layout_text(const job::Job& job);
// "hybridep (16 SMs), overlap ep_a2a grad_reduce, recompute moe_act, ..."
std::string techniques_text(const job::Job& job);

std::string estimate_text(const job::Job& job, const estimate::Estimate& estimate);

// The proof of the memory number: every term of every stage with its formula and divisor, and what
// frees most.
std::string memory_text(const job::Job& job, const layout::Pipeline& pipeline);

}  // namespace trifold::report
