#!/usr/bin/env bash
# Runs every fuzz target for a while under limits of memory and stack, and says how each ended.
#
#   tests/fuzz/run.sh BUILD_DIR [--seconds N] [--jobs N] [--seed S] [TARGET ...]
#
# Opt-in: CTest runs the same targets for seconds. 600 s each and two at a time unless told otherwise; address
# space 2 GiB (not with sanitizers, which reserve terabytes) and 1 MiB of stack, so that what is only deep or
# only long shows. Inputs that bring a target down are left in BUILD_DIR/fuzz/TARGET/. Exit 1 if any did.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=${1:?usage: tests/fuzz/run.sh BUILD_DIR [--seconds N] [--jobs N] [--seed S] [TARGET ...]}
shift
seconds=600 jobs=2 seed=$RANDOM targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=$2; shift 2 ;;
    --jobs) jobs=$2; shift 2 ;;
    --seed) seed=$2; shift 2 ;;
    *) targets+=("$1"); shift ;;
  esac
done
build=$(cd "$build" && pwd) || exit 2
if [ ${#targets[@]} -eq 0 ]; then
  for program in "$build"/tests/fuzz_*; do targets+=("$(basename "$program" | sed s/^fuzz_//)"); done
fi
memory_kib=2097152
grep -q '^TAILOR_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt" && memory_kib=unlimited

run_one() {
  local target=$1 folder="$build/fuzz/$1" code
  mkdir -p "$folder" && cd "$folder" || return 1
  (
    ulimit -v $memory_kib
    ulimit -s 1024
    ulimit -c 0
    exec nice -n 10 "$build/tests/fuzz_$target" --seconds "$seconds" --seed "$seed"
  ) > log 2>&1
  code=$?
  echo "$target: $([ $code -eq 0 ] && echo clean || echo "FAILED with $code, see $folder") - $(tail -1 log)"
  return $code
}
export -f run_one
export build seconds seed memory_kib
echo "${#targets[@]} targets, $seconds s each, $jobs at a time, seed $seed, memory $memory_kib KiB, stack 1024 KiB"
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c 'run_one {}'
code=$?
[ $code -eq 0 ] && echo "all clean" || { echo "some failed"; exit 1; }
