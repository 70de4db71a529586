#!/bin/bash
# Measures models on vLLM servers inside one SLURM job. For each model, the script starts a server on all GPUs of the
# job, waits for it, measures the model, and ends the server. The measurements stay in mlruns/cells.
#
#     sbatch --gres=gpu:4 measure.sh wiki,humaneval llama3/8b=meta-llama/Llama-3.1-8B llama3/70b=meta-llama/Llama-3.1-70B
#
# Arguments: the datasets, and MODEL=SOURCE for each model. MODEL is rbptrack's name of the model, or its folder. SOURCE
# is its repository or folder. Variables: PORT, VLLM_OPTIONS and RBPTRACK_OPTIONS (further words), VLLM and RBPTRACK (the
# two programs).
#SBATCH --job-name=rbptrack-vllm
#SBATCH --output=rbptrack-vllm-%j.log
#SBATCH --signal=B:TERM@120
set -euo pipefail

datasets=$1
shift
gpus=${SLURM_GPUS_ON_NODE:-1}
port=${PORT:-$((20000 + ${SLURM_JOB_ID:-0} % 10000))}  # jobs on one node need different ports
address=http://127.0.0.1:$port
server=
measurement=

end() {  # the measurement first, because it saves what it has
    for process in $measurement $server; do
        kill "$process" 2>/dev/null || true
        wait "$process" || true
    done
    server=
    measurement=
}
trap end EXIT
trap 'exit 143' TERM

status=0
for pair in "$@"; do
    model=${pair%%=*}
    source=${pair#*=}
    # shellcheck disable=SC2086  # the options are several words
    "${VLLM:-vllm}" serve "$source" --port "$port" --tensor-parallel-size "$gpus" \
        --hf-overrides '{"head_dtype": "float32"}' ${VLLM_OPTIONS:-} &
    server=$!
    until curl --silent --fail --output /dev/null "$address/health"; do
        kill -0 "$server" || { echo "the server of $source has ended" >&2; exit 1; }
        sleep 2
    done
    # shellcheck disable=SC2086
    "${RBPTRACK:-rbptrack}" "model=$model" "dataset=$datasets" "model.server=$address" deliver=false \
        ${RBPTRACK_OPTIONS:-} &
    measurement=$!
    wait "$measurement" || status=1
    measurement=
    end
done
exit "$status"
