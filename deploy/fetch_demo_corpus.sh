#!/usr/bin/env bash
# Fetches the demo's text: the kernel documentation of Debian's linux-doc-6.1 (English prose and some
# translations; about 28 MB of text in .rst.gz and .txt.gz). Idempotent; needs apt, not root.
#
#   deploy/fetch_demo_corpus.sh DIR     leaves DIR/Documentation and DIR/copyright
set -euo pipefail

say() { printf 'fetch_demo_corpus: %s\n' "$*"; }
fail() { printf 'fetch_demo_corpus: error: %s\n' "$*" >&2; exit 1; }

package=linux-doc-6.1
case ${1:-} in
  -h|--help) sed -n '2,5p' "$0"; exit 0 ;;
  '') fail "no folder given (usage: deploy/fetch_demo_corpus.sh DIR)" ;;
esac
[ $# -eq 1 ] || fail "one folder expected, got $#: $*"
target=$1
stamp="$package, Documentation only"

if [ "$(cat "$target/.stamp" 2>/dev/null)" = "$stamp" ]; then
  say "$target/Documentation is there"
  exit 0
fi
[ ! -e "$target/Documentation" ] || fail "$target/Documentation is there but was not made by this script: name another folder"
for tool in apt-get dpkg-deb; do
  command -v "$tool" >/dev/null || fail "$tool is missing: this needs Debian"
done

mkdir -p "$target" || fail "cannot create $target"
work=$(mktemp -d "$target/.fetch.XXXXXX") || fail "cannot write into $target"
trap 'rm -rf "$work"' EXIT

download() { (cd "$work" && apt-get -q -o APT::Sandbox::User="$(id -un)" download "$package") >"$work/log" 2>&1; }
say "downloading $package (37 MB)"
if ! download; then
  # Small images ship without package lists.
  if [ "$(id -u)" -eq 0 ]; then sudo=()
  elif command -v sudo >/dev/null; then sudo=(sudo -n)
  else cat "$work/log" >&2; fail "cannot download $package; run apt-get update as root and try again"
  fi
  say "fetching the package lists first"
  "${sudo[@]}" apt-get -q update >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "apt-get update failed: check the network"; }
  download || { cat "$work/log" >&2; fail "cannot download $package: check the network and /etc/apt/sources.list"; }
fi

say "unpacking"
dpkg-deb -x "$work"/*.deb "$work/tree" || fail "cannot unpack $package: is the disk full?"
doc=$work/tree/usr/share/doc/$package
[ -d "$doc/Documentation" ] || fail "$package has no Documentation folder any more"
# The package's html/ holds the same text again: left out.
mv "$doc/copyright" "$target/copyright"
mv "$doc/Documentation" "$target/Documentation"
printf '%s\n' "$stamp" >"$target/.stamp"
say "$target/Documentation: $(find "$target/Documentation" -name '*.gz' | wc -l) files"
