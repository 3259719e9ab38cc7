#!/bin/sh
# Makes keys/: what kustomization.yaml puts into Secrets. Existing keys are kept.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p keys
[ -e keys/slurm.key ] || head -c 1024 /dev/urandom >keys/slurm.key
[ -e keys/jwt.key ] || head -c 32 /dev/urandom >keys/jwt.key
[ -e keys/db-password ] || od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >keys/db-password
sed "s/@PASSWORD@/$(cat keys/db-password)/" slurmdbd.conf >keys/slurmdbd.conf
