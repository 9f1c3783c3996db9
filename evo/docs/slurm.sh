#!/bin/bash
# One run as a chain of Slurm jobs: sbatch --time=08:00:00 slurm.sh RUN-FOLDER
# Begin the run first, on a node of the same kind: srun ... evo run OPERATOR --budget 24h, and Ctrl-C.
#SBATCH --job-name=evo
#SBATCH --nodes=1
#SBATCH --gpus-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --signal=B:TERM@180
#SBATCH --requeue
#SBATCH --open-mode=append
set -u
run=${1:?the folder of a run}
evo resume "$run" &
search=$!
trap 'kill -TERM "$search"' TERM INT   # three minutes before the limit: the search ends in good order
wait "$search"
code=$?
while kill -0 "$search" 2>/dev/null; do wait "$search"; code=$?; done
# 130: stopped by the limit, so the same job goes on later. 0: it ended by itself; 2: its settings are wrong.
if [ "$code" -eq 130 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
