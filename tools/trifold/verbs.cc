// SPDX-License-Identifier: Apache-2.0
#include "cli.h"

namespace trifold::cli {

void add_verbs(CLI::App& app, Context& context) {
  add_plan(app, context);
  add_estimate(app, context);
  add_report(app, context);
  add_whatif(app, context);
  add_explain(app, context);
  add_calibrate(app, context);
  add_simulate(app, context);
  add_emit(app, context);
  add_check(app, context);
  add_compare(app, context);
  add_validate(app, context);
  add_list(app, context);
  add_import(app, context);
}

}  // namespace trifold::cli
