// SPDX-License-Identifier: Apache-2.0
#include "job/training.h"

namespace trifold::job {

hardware::Dtype gemm_dtype(Precision precision) {
  switch (precision) {
    case Precision::bf16:
      return hardware::Dtype::bf16;
    case Precision::fp8_delayed:
    case Precision::fp8_tensor:
      return hardware::Dtype::fp8_tensor;
    case Precision::fp8_block:
      return hardware::Dtype::fp8_block;
    case Precision::mxfp8:
      return hardware::Dtype::mxfp8;
    case Precision::nvfp4:
      return hardware::Dtype::nvfp4;
  }
  return hardware::Dtype::bf16;
}

}  // namespace trifold::job
