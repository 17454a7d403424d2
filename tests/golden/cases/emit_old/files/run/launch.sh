#!/bin/bash
# trifold plan 548a24bc32661fe6: small.model on 16 x round, Megatron 0.17
# tp 2 cp 1 dp 4 pp 2 vpp 1 ep 4 etp 1 edp 2, global batch 64, micro batch 1, sequence 4096
# predicted step time 0.539 s (80 % interval 0.464 to 0.627 s)
# Run on every node: NODE_RANK=0..1 MASTER_ADDR=first-host bash launch.sh
set -euo pipefail

# Placeholders
export MEGATRON_PATH="${MEGATRON_PATH:-/opt/megatron-lm}"
export DATA_PATH="${DATA_PATH:-}"              # empty: mock data
export TOKENIZER_MODEL="${TOKENIZER_MODEL:-}"  # with DATA_PATH: a Hugging Face tokenizer
export CHECKPOINT_PATH="${CHECKPOINT_PATH:-}"  # empty: nothing is saved or loaded
export NNODES="${NNODES:-2}"
export GPUS_PER_NODE="${GPUS_PER_NODE:-8}"
export NODE_RANK="${NODE_RANK:-0}"
export MASTER_ADDR="${MASTER_ADDR:-localhost}"
export MASTER_PORT="${MASTER_PORT:-29500}"

export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_NVLS_ENABLE=0
export NVTE_ALLOW_NONDETERMINISTIC_ALGO=1
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export TORCH_NCCL_AVOID_RECORD_STREAMS=1

DATA_ARGS=(
  --mock-data
  --tokenizer-type NullTokenizer
  --vocab-size 32000
)
if [[ -n "${DATA_PATH}" ]]; then
  DATA_ARGS=(--data-path "${DATA_PATH}" --split '99,1,0' --tokenizer-type HuggingFaceTokenizer --tokenizer-model "${TOKENIZER_MODEL}")
fi
CHECKPOINT_ARGS=()
if [[ -n "${CHECKPOINT_PATH}" ]]; then
  CHECKPOINT_ARGS=(--save "${CHECKPOINT_PATH}" --load "${CHECKPOINT_PATH}" --save-interval 1000)
fi
ARGS=(
  --num-layers 8
  --hidden-size 1024
  --ffn-hidden-size 512
  --num-attention-heads 16
  --group-query-attention
  --num-query-groups 4
  --kv-channels 64
  --qk-layernorm
  --seq-length 4096
  --max-position-embeddings 8192
  --position-embedding-type rope
  --rotary-base 10000
  --rotary-percent 1
  --normalization RMSNorm
  --norm-epsilon 1e-06
  --init-method-std 0.02
  --swiglu
  --disable-bias-linear
  --untie-embeddings-and-output-weights
  --attention-dropout 0
  --hidden-dropout 0
  --num-experts 32
  --moe-layer-freq 1
  --moe-ffn-hidden-size 512
  --moe-router-topk 4
  --moe-router-score-function softmax
  --moe-router-pre-softmax
  --moe-router-load-balancing-type aux_loss
  --moe-aux-loss-coeff 0.001
  --moe-router-dtype fp32
  --tensor-model-parallel-size 2
  --sequence-parallel
  --context-parallel-size 1
  --pipeline-model-parallel-size 2
  --expert-model-parallel-size 4
  --expert-tensor-parallel-size 1
  --micro-batch-size 1
  --global-batch-size 64
  --bf16
  --optimizer adam
  --use-distributed-optimizer
  --moe-token-dispatcher-type alltoall
  --moe-grouped-gemm
  --recompute-granularity selective
  --recompute-modules layernorm
  --transformer-impl transformer_engine
  --make-vocab-size-divisible-by 128
  --train-iters 100
  --lr 0.0001
  --min-lr 1e-05
  --lr-decay-style cosine
  --weight-decay 0.1
  --clip-grad 1
  --adam-beta1 0.9
  --adam-beta2 0.95
  --eval-iters 0
  --distributed-timeout-minutes 60
  --no-check-for-nan-in-loss-and-grad
  --manual-gc
  --manual-gc-interval 10
  --ckpt-format torch_dist
  --log-interval 1
  --log-throughput
)
# shellcheck disable=SC2206  # EXTRA_ARGS is cut at blanks
EXTRA=(${EXTRA_ARGS:-})

exec torchrun --nnodes "${NNODES}" --nproc-per-node "${GPUS_PER_NODE}" \
  --node-rank "${NODE_RANK}" --master-addr "${MASTER_ADDR}" --master-port "${MASTER_PORT}" \
  "${MEGATRON_PATH}/pretrain_gpt.py" "${ARGS[@]}" "${DATA_ARGS[@]}" "${CHECKPOINT_ARGS[@]}" "${EXTRA[@]}"
