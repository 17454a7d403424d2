// SPDX-License-Identifier: Apache-2.0
#include "calibrate/calibrate.h"
#include "calibrate/harness/bootstrap.h"

namespace trifold::calibrate {

bool built_with_cuda() { return false; }

Result<Summary> run(const Options& options) {
  if (options.mode == Mode::bootstrap) return rehearse_bootstrap();
  return Error{ErrorCode::environment, "built without CUDA", "",
               "configure with -DTRIFOLD_WITH_CUDA=ON where nvcc and NCCL are installed, or refit "
               "points measured elsewhere with --fit"};
}

}  // namespace trifold::calibrate
