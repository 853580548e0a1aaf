#!/bin/bash
# Run the same command on every host of a Cloud TPU slice, joined into one training. It was not run on a TPU.
#
#   scripts/tpu/train.sh NAME ZONE pretrain/baseline --text /shared/books --out /shared/results/baseline
#   scripts/tpu/train.sh NAME ZONE --run pretrain/gu-data --out /shared/results/gu-data      # a study that trains its models
#
# NAME and ZONE are those of the slice. sinkjax[tpu,train] must be installed on each host, and the folder after --out lie on a file
# system that all of them share, such as Filestore. A slice that was pre-empted goes on where it was: give the command again.
set -euo pipefail
(($# >= 3)) || { echo "usage: $0 NAME ZONE [--run] CONFIG --out FOLDER [OPTIONS]"; exit 2; }
name=$1 zone=$2
shift 2
verb=train
if [[ $1 == --run ]]; then verb=run; shift; fi

command="sinkjax $verb $(printf '%q ' "$@")--join --platform tpu"
exec gcloud compute tpus tpu-vm ssh "$name" --zone="$zone" --worker=all --command="$command"
