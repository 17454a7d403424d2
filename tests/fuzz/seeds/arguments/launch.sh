#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NVTE_FUSED_ATTN=1
NAME="a run"
ARGS=(
  --num-layers 8 --hidden-size 1024  # widths
  --ffn-hidden-size 4096 --num-attention-heads 16 --group-query-attention --num-query-groups 4
  --seq-length 4096 --max-position-embeddings 4096 --vocab-size 32000 --make-vocab-size-divisible-by 128
  --num-experts 32 --moe-router-topk 4 --moe-ffn-hidden-size 512 --moe-layer-freq '[0]*1+[1]*7'
  --tensor-model-parallel-size=2 --pipeline-model-parallel-size 2 --expert-model-parallel-size 4
  --micro-batch-size 1 --global-batch-size 64 --bf16 --swiglu --sequence-parallel
  --recompute-granularity selective --recompute-modules layernorm moe_act
  ${EXTRA_ARGS[@]:-}
)
torchrun --nnodes 8 --nproc-per-node 8 pretrain_gpt.py "${ARGS[@]}" --save "/tmp/$NAME" \
  --use-distributed-optimizer
