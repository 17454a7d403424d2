#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# slurm_test.sh DIR: starts a Slurm of one node on this machine (munge, slurmctld, slurmd, all in a
# folder of their own), submits DIR/submit.sbatch with a stand-in for torchrun that records what it
# gets, waits for it, prints the record and stops everything again. Needs root.
set -euo pipefail

launch_dir="$1"
work="$(mktemp -d /tmp/trifold_slurm.XXXXXX)"
pids=()
stop() {
  for pid in "${pids[@]}"; do kill "${pid}" 2> /dev/null || true; done
  wait 2> /dev/null || true
  rm -rf "${work}"
}
trap stop EXIT
explain() {
  tail -n 20 "${work}"/*.log "${launch_dir}"/trifold-*.log >&2 || true
  exit 1
}

mkdir -p "${work}/state" "${work}/spool" "${work}/bin"
head -c 1024 /dev/urandom > "${work}/munge.key"
chmod 400 "${work}/munge.key"
cat > "${work}/slurm.conf" << CONF
ClusterName=trifold
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=27817
SlurmdPort=27818
AuthType=auth/munge
AuthInfo=socket=${work}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
GresTypes=gpu
MpiDefault=none
ReturnToService=2
StateSaveLocation=${work}/state
SlurmdSpoolDir=${work}/spool
SlurmctldPidFile=${work}/slurmctld.pid
SlurmdPidFile=${work}/slurmd.pid
NodeName=localhost NodeAddr=127.0.0.1 CPUs=$(nproc) Gres=gpu:2 State=UNKNOWN
PartitionName=test Nodes=localhost Default=YES MaxTime=INFINITE State=UP
CONF
# Two devices that every machine has stand in for GPUs.
printf 'Name=gpu File=/dev/%s\n' null zero > "${work}/gres.conf"
# No cgroup is used; v1 alone does not insist on a mounted tree.
printf 'CgroupPlugin=cgroup/v1\n' > "${work}/cgroup.conf"
export SLURM_CONF="${work}/slurm.conf"

munged --foreground --force --socket="${work}/munge.socket" --key-file="${work}/munge.key" \
  --pid-file="${work}/munged.pid" --log-file="${work}/munged.log" --seed-file="${work}/seed" \
  > "${work}/munged.out.log" 2>&1 &
pids+=($!)
for _ in $(seq 100); do
  if [[ -S "${work}/munge.socket" ]]; then break; fi
  sleep 0.1
done
slurmctld -D -f "${SLURM_CONF}" > "${work}/slurmctld.log" 2>&1 &
pids+=($!)
slurmd -D -N localhost -f "${SLURM_CONF}" > "${work}/slurmd.log" 2>&1 &
pids+=($!)
for _ in $(seq 150); do
  if sinfo -h -o %T 2> /dev/null | grep -q idle; then break; fi
  sleep 0.2
done
sinfo -h -o %T | grep -q idle || explain

cat > "${work}/bin/torchrun" << 'STUB'
#!/bin/bash
{
  echo "NODE_RANK=${NODE_RANK} NNODES=${NNODES} MASTER_ADDR=${MASTER_ADDR} SLURM_PROCID=${SLURM_PROCID}"
  printf '%s\n' "$@"
} > "${LAUNCH_DIR}/record.txt"
STUB
chmod +x "${work}/bin/torchrun"
cd "${launch_dir}"
PATH="${work}/bin:${PATH}" timeout 120 sbatch --wait submit.sbatch > /dev/null || explain
cat record.txt
