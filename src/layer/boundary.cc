// SPDX-License-Identifier: Apache-2.0

// What stands before the first layer and after the last: embedding, final norm with the vocabulary
// projection and the loss, and the projection that feeds an MTP depth. Bytes per logit: 6 forward
// and 4 backward with the fused cross entropy (read and write in place), about 14 and 8 with
// separate FP32 softmax kernels. Source: modelling.md 3, megatron.md 5.5.

#include "layer/builder.h"
#include "layer/counts.h"
#include "model/size.h"

namespace trifold::layer {

void build_embedding(Builder& b) {
  b.segment(Segment::attention);
  const double nl = b.shape.local_tokens, h = static_cast<double>(b.model.hidden);
  b.elementwise("embedding", 4 * nl * h, 10 * nl * h, 2,
                2);  // backward adds into the gradient buffer
}

void build_head(Builder& b) {
  const double n = b.shape.tokens, nl = b.shape.local_tokens,
               h = static_cast<double>(b.model.hidden);
  const double vocab =
      static_cast<double>(model::padded_vocab(b.model, b.job.layout.tp)) / b.shape.tp;
  b.segment(Segment::attention);
  b.elementwise("final_norm", 4 * nl * h, 8 * nl * h);
  b.linear("output_layer", n, vocab, h, b.techniques.has(job::Fusion::fp8_output_projection));
  const bool fused = b.techniques.has(job::Fusion::cross_entropy);
  b.elementwise("cross_entropy", n * vocab * (fused ? 6 : 14), n * vocab * (fused ? 4 : 8),
                fused ? 3 : 10, fused ? 1 : 4);
}

void build_mtp_projection(Builder& b) {
  const double nl = b.shape.local_tokens, n = b.shape.tokens,
               h = static_cast<double>(b.model.hidden);
  b.segment(Segment::attention);
  b.elementwise("mtp_embedding", 4 * nl * h, 10 * nl * h, 2, 2);
  b.elementwise("mtp_norms", 8 * nl * h, 16 * nl * h, 2, 4);
  b.elementwise("mtp_concat", 8 * nl * h, 8 * nl * h);
  b.linear("mtp_projection", n, h / b.shape.tp, 2 * h);
}

}  // namespace trifold::layer
