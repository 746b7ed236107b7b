#!/usr/bin/env bash
# From a clean Debian 12 to an answered architecture sweep, on one machine without a GPU:
# sets up, builds, prepares real English text, starts a coordinator and two workers on loopback, submits a
# sweep, kills one worker half-way, and ends with the paired table.
#
#   deploy/demo.sh             everything (under 15 minutes on 2 cores, under 5 when built)
#   deploy/demo.sh --keep      leave the dashboard up at the end until Ctrl-C (the default on a terminal)
#   deploy/demo.sh --no-keep   stop everything at the end (the default without a terminal)
set -euo pipefail
cd "$(dirname "$0")/.."

keep=0; [ -t 1 ] && keep=1
for argument in "$@"; do
  case $argument in
    --keep) keep=1 ;;
    --no-keep) keep=0 ;;
    -h|--help) sed -n '2,8p' "$0"; exit 0 ;;
    *) echo "demo: unknown option $argument (allowed: --keep, --no-keep)" >&2; exit 2 ;;
  esac
done

began=$SECONDS
step() { printf '\n=== [%3ds] %s\n' $((SECONDS - began)) "$*"; }
die() { printf 'demo: error: %s\n' "$*" >&2; exit 1; }

bin=$PWD/build/release/bin
demo=$PWD/demo
run=$demo/run
pids=()

stop_all() {
  local status=$?
  trap - EXIT INT TERM
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  exit $status
}
trap stop_all EXIT
trap 'exit 130' INT TERM

step "1. Set-up: Debian packages, LibTorch and Plotly"
bash deploy/setup.sh

step "2. Build (optimised; the first time takes some minutes)"
cmake --preset release >build-configure.log 2>&1 || { tail -n 30 build-configure.log >&2; die "configuring failed"; }
rm -f build-configure.log
cmake --build build/release -j "$(nproc)" \
  --target tailor tailor-coordinator tailor-worker tailor-trainer tailor-tokenize |
  { if [ -t 1 ]; then cat; else grep -E 'FAILED|error|warning|ninja:' || true; fi; }
for program in tailor tailor-coordinator tailor-worker tailor-trainer tailor-tokenize; do
  [ -x "$bin/$program" ] || die "the build did not make $program"
done

step "3. Real text: the kernel's documentation, a SentencePiece tokenizer trained on it, token shards"
mkdir -p "$demo/data"
bash deploy/fetch_demo_corpus.sh "$demo/corpus"
if [ ! -s "$demo/data/linux-doc.model" ]; then
  "$bin/tailor-tokenize" train --input "$demo/corpus" --vocab-size 2048 --sample-bytes 8000000 \
    --model "$demo/data/linux-doc.model"
fi
# Done before, this finds itself done; killed before, it goes on.
"$bin/tailor" data prepare "$demo/corpus" --tokenizer "$demo/data/linux-doc.model" \
  --out "$demo/data/linux-doc" --validation-fraction 0.02

step "4. What will run: exact counts, before anything runs"
# The sweep file stands beside its data, because relative paths start from the file.
cp deploy/sweeps/demo.toml "$demo/demo.toml"
"$bin/tailor" plan "$demo/demo.toml"

step "5. A coordinator and two workers on loopback"
rm -rf "$run"; mkdir -p "$run"
"$bin/tailor-coordinator" --database "$run/tailor.db" --listen 127.0.0.1:0 --http 127.0.0.1:0 \
  --heartbeat 1s --lease 12s --port-file "$run/ports.json" 2>"$run/coordinator.log" &
coordinator=$!; pids+=("$coordinator")
for _ in $(seq 200); do [ -s "$run/ports.json" ] && break; kill -0 "$coordinator" 2>/dev/null || break; sleep 0.05; done
[ -s "$run/ports.json" ] || { cat "$run/coordinator.log" >&2; die "the coordinator did not start"; }
grpc=$(sed -n 's/.*"grpc_address"[^"]*"\([^"]*\)".*/\1/p' "$run/ports.json")
http=$(sed -n 's/.*"http_address"[^"]*"\([^"]*\)".*/\1/p' "$run/ports.json")
export TAILOR_COORDINATOR=$grpc
start_worker() {
  "$bin/tailor-worker" --coordinator "$grpc" --name "$1" --work-dir "$run/$1" --trials-dir "$run/trials" \
    --slots 1 --threads-per-slot 1 --trainer-lease 4s 2>>"$run/$1.log" &
  worker_pid=$!; pids+=("$worker_pid")
}
start_worker node-a
start_worker node-b; node_b=$worker_pid
echo "coordinator $grpc, dashboard http://$http/, workers node-a and node-b (1 slot each)"

step "6. Submit"
"$bin/tailor" submit "$demo/demo.toml"
"$bin/tailor" submit "$demo/demo.toml"

# number_of STATE: trials of the sweep in that state.
number_of() { "$bin/tailor" query "SELECT count(*) AS n FROM trial WHERE state = '$1'" | tail -n 1; }

step "7. Half-way, node-b is killed with SIGKILL"
until [ "$(number_of completed)" -ge 3 ]; do
  [ "$(number_of failed)" -eq 0 ] || { "$bin/tailor" ls last --state failed; die "a trial failed"; }
  sleep 1
done
# A trial of node-b in the midst of its training (118 steps), with a checkpoint behind it.
victim=""
for _ in $(seq 400); do
  victim=$("$bin/tailor" query "SELECT a.trial FROM attempt a JOIN worker w ON w.id = a.worker JOIN metric_latest_view m ON m.trial = a.trial AND m.attempt = a.number WHERE w.name = 'node-b' AND a.state = 'running' AND m.metric = 'train_loss' AND m.step BETWEEN 25 AND 75 AND EXISTS (SELECT 1 FROM checkpoint c WHERE c.trial = a.trial) LIMIT 1" | sed -n 2p)
  [ -n "$victim" ] && break
  sleep 0.3
done
[ -n "$victim" ] || die "node-b never ran a trial with a checkpoint"
disown "$node_b"
kill -KILL "$node_b"
echo "killed node-b (pid $node_b) while it ran t$victim:"
"$bin/tailor" workers
"$bin/tailor" why "t$victim"
echo "its trainer runs on until its lease is over, saves a checkpoint and exits; the attempt's lease runs out and"
echo "the trial goes elsewhere, from that checkpoint:"
for _ in $(seq 240); do
  attempts=$("$bin/tailor" query "SELECT attempts FROM trial WHERE id = $victim" | sed -n 2p)
  [ "$attempts" -ge 2 ] && break
  sleep 0.5
done
[ "$attempts" -ge 2 ] || die "t$victim was not taken over"
start_worker node-b
echo "node-b is started again"

step "8. The rest of the sweep"
"$bin/tailor" watch last >"$run/events.log" || die "the sweep did not complete: see $run"
"$bin/tailor" show "t$victim"
resumed=$("$bin/tailor" --json show "t$victim" | sed -n 's/.*"resumed_step": \([0-9]*\).*/\1/p' | tail -n 1)
[ "${resumed:-0}" -gt 0 ] || die "t$victim started over instead of resuming"
echo "t$victim resumed from step $resumed"

step "9. The answer, paired by seed"
"$bin/tailor" ls last
echo
"$bin/tailor" compare last
echo
first=$("$bin/tailor" query "SELECT min(id) FROM trial" | sed -n 2p)
echo "How far each layer of t$first moves its token cloud (mean over subsamples, standard error):"
"$bin/tailor" profile "t$first"

cat <<EOF

These are 1M-parameter networks trained for seconds on two seeds: the run shows that the machinery works.
It is far too small to decide what the papers claim about hourglass or tapered networks.

What to try next
  edit demo/demo.toml: more tokens, five seeds, other widths; then build/release/bin/tailor plan demo/demo.toml
  build/release/bin/tailor export last --what curves -o curves.csv
  deploy/sweeps/hourglass-113m.toml: the published scale, for GPU workers
EOF

if [ $keep = 1 ]; then
  echo
  echo "Dashboard: http://$http/  (Ctrl-C here ends the demo)"
  echo "In another terminal: export TAILOR_COORDINATOR=$grpc"
  wait "$coordinator"
else
  echo
  echo "Dashboard of this run: build/release/bin/tailor-coordinator --database demo/run/tailor.db"
  echo "then open http://127.0.0.1:7071/"
fi
step "done"
