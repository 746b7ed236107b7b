#!/usr/bin/env bash
# Makes the pictures of docs/ with Tailor itself: trains a small network on the demo's text, measures it, draws it.
#
#   docs/pictures/make.sh           needs build/release and demo/data (deploy/demo.sh makes both)
#   TAILOR_BIN=DIR TAILOR_DEMO_DATA=DIR docs/pictures/make.sh       programs and data elsewhere
set -euo pipefail
cd "$(dirname "$0")/../.."

bin=${TAILOR_BIN:-$PWD/build/release/bin}
data=${TAILOR_DEMO_DATA:-$PWD/demo/data}
out=$PWD/docs/pictures
fail() { printf 'make.sh: error: %s\n' "$*" >&2; exit 1; }
for program in tailor tailor-coordinator tailor-worker tailor-trainer; do
  [ -x "$bin/$program" ] || fail "$bin/$program is missing: build it first (deploy/demo.sh)"
done
compgen -G "$data/linux-doc/train-*.tokens" >/dev/null || fail "$data/linux-doc has no shards: deploy/demo.sh makes them"

run=$(mktemp -d)
pids=()
stop_all() {
  local status=$?
  trap - EXIT INT TERM
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$run"
  exit $status
}
trap stop_all EXIT
trap 'exit 130' INT TERM

# Paths in a sweep file start at its folder.
ln -s "$data" "$run/data"
cp "$out/work-profile.toml" "$run/"
"$bin/tailor-coordinator" --database "$run/tailor.db" --listen 127.0.0.1:0 --http 127.0.0.1:0 \
  --port-file "$run/ports.json" 2>"$run/coordinator.log" &
pids+=($!)
for _ in $(seq 600); do [ -s "$run/ports.json" ] && break; sleep 0.05; done
[ -s "$run/ports.json" ] || { cat "$run/coordinator.log" >&2; fail "the coordinator did not start"; }
TAILOR_COORDINATOR=$(sed -n 's/.*"grpc_address"[^"]*"\([^"]*\)".*/\1/p' "$run/ports.json")
export TAILOR_COORDINATOR
"$bin/tailor-worker" --coordinator "$TAILOR_COORDINATOR" --name painter --work-dir "$run/work" --trials-dir "$run/trials" \
  --slots 1 --threads-per-slot 1 \
  2>"$run/worker.log" &
pids+=($!)

"$bin/tailor" submit "$run/work-profile.toml" --watch >&2
"$bin/tailor" profile t1 --svg "$out/work-profile.svg" >&2
echo "$out/work-profile.svg"
