// SPDX-License-Identifier: Apache-2.0
#pragma once

// The error table as text: every record, then the errors by what divides them, ranking, and what
// was left out and why.

#include <string>

#include "observe/validate.h"

namespace trifold::observe {

struct TextOptions {
  bool rows = true;       // one line a record
  bool markdown = false;  // the summary alone, for the README
};

std::string validation_text(const std::vector<Row>& rows, const std::vector<Skipped>& skipped,
                            const TextOptions& options);

}  // namespace trifold::observe
