#!/usr/bin/env bash
# Everything that needs a GPU, in under four minutes on an H200: the tests labelled gpu, then how much of
# the device's dense bf16 peak training reaches, as a table for docs/benchmarks.md. Needs PyTorch's
# libraries (2.11.0, CUDA 13), installs nothing, and says aloud what it skips and why.
#
#   tests/gpu.sh [--build DIR] [--quick]   DIR: where cmake built (build/release, else build)
#   tests/gpu.sh --pack TO [--build DIR]   on a machine without a GPU: the programs, and the libraries
#                                          that they need beside PyTorch's, into the folder TO
#   tests/gpu.sh --from TO [--quick]       elsewhere, in a copy of this tree: with what was packed
#
# LibTorch is looked for in $TAILOR_TORCH_LIB, beside Python's torch, and in third_party/libtorch/lib.
# Exit codes: 0 all well, 1 something failed, 2 usage, 77 nothing could be run.
set -uo pipefail
cd "$(dirname "$0")/.."

budget_s=230  # of the whole script; what does not fit in is skipped
say() { printf 'gpu.sh: %s\n' "$*"; }
fail() { printf 'gpu.sh: error: %s\n' "$*" >&2; exit "${2:-1}"; }
skipped=()
skip() { skipped+=("$*"); say "SKIPPED $*"; }

build='' from='' pack='' quick=''
while [ $# -gt 0 ]; do
  case $1 in
    --build|--from|--pack) [ $# -ge 2 ] || fail "$1 needs a folder" 2
                           printf -v "${1#--}" '%s' "$2"; shift ;;
    --quick) quick=1 ;;
    -h|--help) sed -n '2,13p' "$0"; exit 0 ;;
    *) fail "unknown option $1 (allowed: --build, --from, --pack, --quick)" 2 ;;
  esac
  shift
done
if [ -z "$build" ]; then
  build=build/release
  [ -d "$build/bin" ] || build=build
fi
programs=(bin/tailor-trainer bin/libtailor_cuda.so)
also=(bin/libtailor_geometry_cuda.so)
tests=(model_gpu_test parity_gpu_test geometry_gpu_test worker_gpu_test)

if [ -n "$pack" ]; then
  mkdir -p "$pack/bin" "$pack/tests" "$pack/lib"
  for file in "${programs[@]}" "${also[@]}" "${tests[@]/#/tests/}"; do
    [ -e "$build/$file" ] || { say "not built, not packed: $build/$file"; continue; }
    cp "$build/$file" "$pack/$file"
    strip --strip-unneeded "$pack/$file"
    # Ours alone: neither glibc and g++'s library, nor what comes with PyTorch (all of the plugin's).
    case $file in *.so) continue ;; esac
    ldd "$build/$file" | awk '$3 ~ /^\// && $3 !~ /libtorch/ {print $3}' |
      grep -vE '/(libc|libm|libdl|librt|libutil|libpthread|libresolv|libstdc\+\+|libgcc_s|libgomp)\.so' |
      xargs -r cp -u -t "$pack/lib"
  done
  say "packed $(du -sh "$pack" | cut -f1) into $pack"
  exit 0
fi
[ -z "$from" ] || build=$from
for file in "${programs[@]}"; do
  [ -e "$build/$file" ] || fail "$build/$file is missing: cmake --preset cuda && cmake --build build/cuda, then --build build/cuda"
done

# ---- the GPU and the libraries
if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >/dev/null 2>&1; then
  say "SKIPPED everything: no GPU here (nvidia-smi is missing or finds none)"
  exit 77
fi
gpus=$(nvidia-smi -L | grep -c '^GPU')
torch_lib=${TAILOR_TORCH_LIB:-}
if [ -z "$torch_lib" ]; then
  torch_lib=$(python3 -c 'import os, torch; print(os.path.join(os.path.dirname(torch.__file__), "lib"))' 2>/dev/null)
fi
[ -n "$torch_lib" ] || torch_lib=$PWD/third_party/libtorch/lib
[ -e "$torch_lib/libtorch_cuda.so" ] ||
  fail "libtorch_cuda.so is not in $torch_lib: set TAILOR_TORCH_LIB to the lib folder of torch 2.11.0+cu130"
version=$(sed -n "s/^__version__ = '\(.*\)'/\1/p" "$torch_lib/../version.py" 2>/dev/null)
case $version in ''|2.11.0*) ;; *) fail "torch in $torch_lib is $version; these programs need 2.11.0" ;; esac
# NVIDIA's libraries from the wheels that PyTorch depends on, then ours.
paths=$torch_lib
for folder in "$torch_lib"/../../nvidia/*/lib; do [ -d "$folder" ] && paths+=:$folder; done
[ -z "$from" ] || paths+=:$(cd "$from" && pwd)/lib
export LD_LIBRARY_PATH=$paths${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
TAILOR_BIN=$(cd "$build/bin" && pwd)
export TAILOR_BIN TAILOR_TEST_DATA=$PWD/tests/data
cores=$(nproc)
say "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1), $gpus visible, torch ${version:-2.11.0?}"

"$build/bin/tailor-trainer" --version >/dev/null ||
  fail "tailor-trainer does not start here; missing: $(ldd "$build/bin/tailor-trainer" 2>&1 | grep -E 'not found' | tr -s '\t\n' ' ')"

# ---- tests
failed=()
left() { echo $((budget_s - SECONDS)); }
for test in "${tests[@]}"; do
  if [ ! -x "$build/tests/$test" ]; then skip "$test: not built"; continue; fi
  log=$(mktemp)
  begin=$SECONDS
  timeout $(($(left) > 5 ? $(left) : 5)) "$build/tests/$test" --gtest_brief=1 >"$log" 2>&1 || failed+=("$test")
  grep -E 'FAILED|PASSED|tests? ran' "$log" | sed "s/^/  $test: /"
  # A GPU is here: nothing but what needs two of them may be skipped.
  while read -r reason; do
    skip "a test of $test: $reason"
    [[ $gpus -lt 2 && $reason == *"two GPUs"* ]] || failed+=("$test skipped a test")
  done < <(grep -A1 'Skipped$' "$log" | grep -v -e 'Skipped$' -e '^--$' | sort | uniq)
  case " ${failed[*]-} " in *" $test "*) tail -n 60 "$log" ;; esac
  say "$test took $((SECONDS - begin)) s"
  rm -f "$log"
done

# ---- how much of the peak
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
arch() {  # NAME d_model layers heads head_dim k d_h
  {
    printf 'd_model = %s\nlayers = %s\nheads = %s\nhead_dim = %s\nvocab_size = 50304\nffn.d_h = %s\n' "$2" "$3" "$4" "$5" "$7"
    [ "$6" = 1 ] || printf 'ffn.kind = "hourglass"\nffn.k = %s\n' "$6"
  } >"$work/$1.toml"
}
arch 124M 768 12 12 64 1 2048
arch hourglass-124M-K4 768 12 12 64 4 512
arch 350M 1024 24 16 64 1 2752
arch 1B 2048 16 16 128 1 8192
rows=()
bench() {  # NAME batch seq graph [order]
  local options=(--arch "$work/$1.toml" --device cuda:0 --batch "$2" --seq "$3" --dtype bf16 --steps 20
                 --threads "$cores" --json)
  [ "$4" = no ] || options+=(--graph)
  [ "${5:-fixed}" = fixed ] || options+=(--any-order)
  if [ "$(left)" -lt 15 ]; then skip "bench $*: the time is used up"; return; fi
  local out
  if ! out=$(timeout "$(left)" "$build/bin/tailor-trainer" bench "${options[@]}" 2>"$work/error"); then
    failed+=("bench $*")
    tail -n 5 "$work/error"
    return
  fi
  [ "${5:-fixed}" = any ] || printf '%s %s %s %s\n' "$1" "$2" "$4" "$(sed 's/.*"tokens_per_s":\([0-9.e+]*\).*/\1/' <<<"$out")" >>"$work/speeds"
  rows+=("$(python3 - "$1" "$3" "$2" "$4" "${5:-fixed}" "$out" <<'P'
import json, sys
name, seq, batch, graph, order, text = sys.argv[1:]
o = json.loads(text)
share = "-" if o["peak_share"] is None else f'{100 * o["peak_share"]:.1f} %'
p = o["phases_s"]
phases = "-" if p is None else " / ".join(f'{1e3 * p[k]:.1f}' for k in ("loader", "forward", "backward", "update"))
print(f'| {name} | {batch} x {seq} | {graph} | {order} | {o["tokens_per_s"]:,.0f} | {o["gflops"] / 1e3:.0f} | {share} | '
      f'{o["step_ms"]:.1f} | {phases} | {o["peak_device_bytes"] / 2**30:.1f} |')
P
)")
  say "bench $*: ${rows[-1]}"
}
bench 124M 32 1024 yes
bench hourglass-124M-K4 32 1024 yes
bench 124M 32 1024 no
bench hourglass-124M-K4 32 1024 no
if [ -z "$quick" ]; then
  bench 350M 16 2048 yes
  bench 1B 8 2048 yes
  bench 350M 16 2048 no
  bench 1B 8 2048 no
  bench 124M 8 1024 yes
  bench 124M 8 1024 no
  bench 124M 32 1024 yes any
  bench 1B 8 2048 yes any
else
  skip "350M, 1B and small batches: --quick"
fi
printf '\n%s, bf16, FLOPs = 6 N + 12 L T (H e), %s\n\n' \
  "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)" "$(git describe --always 2>/dev/null || echo unknown)"
printf '| shape | batch | graph | order of sums | tokens/s | TFLOP/s | of dense bf16 peak | step ms | loader / forward / backward / update ms | GPU memory GiB |\n|---|---|---|---|---|---|---|---|---|---|\n'
[ ${#rows[@]} -eq 0 ] || printf '%s\n' "${rows[@]}"
touch "$work/speeds"
awk '{speed[$1 " " $2, $3] = $4; name[$1 " " $2] = 1}
  END {
    printf "\n"
    for (n in name) if (speed[n, "no"] > 0 && speed[n, "yes"] > 0)
      printf "CUDA graph over none, %s sequences: %.2f x\n", n, speed[n, "yes"] / speed[n, "no"]
    split("yes no", graph, " ")
    for (i = 1; i <= 2; ++i) if (speed["124M 32", graph[i]] > 0 && speed["hourglass-124M-K4 32", graph[i]] > 0)
      printf "hourglass K = 4 over conventional, graph %s: %.2f x (0.85 is asked for)\n", graph[i],
        speed["hourglass-124M-K4 32", graph[i]] / speed["124M 32", graph[i]]
    printf "\n"
  }' "$work/speeds"
for what in "${skipped[@]-}"; do [ -z "$what" ] || say "skipped: $what"; done
say "took $SECONDS s"
if [ ${#failed[@]} -gt 0 ]; then
  printf 'gpu.sh: FAILED: %s\n' "${failed[@]}"
  exit 1
fi
say "all well"
