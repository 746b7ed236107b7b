#!/usr/bin/env bash
# Sets up, builds and runs all tests with CTest.
#
#   tests/run.sh                   what CI runs: the release build, every test
#   tests/run.sh --asan | --tsan   the same tests under AddressSanitizer + UBSan, or ThreadSanitizer
#                                  (without LibTorch; tsan also without gRPC)
#   tests/run.sh -R REGEX ...      further arguments go to ctest
set -euo pipefail
cd "$(dirname "$0")/.."

preset=release
setup=()
case "${1:-}" in
  --asan) preset=asan; setup=(--no-torch); shift ;;
  --tsan) preset=tsan; setup=(--no-torch); shift ;;
  -h|--help) sed -n '2,7p' "$0"; exit 0 ;;
esac

bash deploy/setup.sh "${setup[@]}"
cmake --preset "$preset" -DTAILOR_WERROR=ON >/dev/null
cmake --build "build/$preset" -j "$(nproc)" | { if [ -t 1 ]; then cat; else grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking|Generating|Running)' || true; fi; }
exec ctest --test-dir "build/$preset" --output-on-failure -j "$(nproc)" --no-tests=error "$@"
