#!/bin/sh
# Builds the dynamic set: ./build.sh [FOLDER], by default build/ beside this script.
#
#   specweb99.cgi       CGI program                       gcc or clang
#   specweb99-fastcgi   FastCGI program, for spawn-fcgi   libfcgi-dev
#   specweb99.so        module, shared library            gcc or clang
#   specweb99.wasm      module, WebAssembly               clang, lld, wasi-libc, libclang-rt-14-dev-wasm32
#
# What can't be built for want of a package is left out, with a line that says so; --all makes that
# an error. LOWROAD_INCLUDE is the folder of lowroad.h, where it is not at its place in this project.
set -eu
all=no
[ "${1:-}" = --all ] && { all=yes; shift; }
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/build}
include=${LOWROAD_INCLUDE:-$here/../../crates/module/include}
cc=${CC:-cc}
mkdir -p "$out"

core="core.c form.c text.c ads.c"
gateway="gateway.c files.c"
flags="-std=gnu11 -O2 -Wall -Wextra -Werror -I$include"

left_out() {
    echo "build.sh: $1 is left out: $2" >&2
    [ "$all" = no ]
}

cd "$here"
$cc $flags -o "$out/specweb99.cgi" cgi.c $gateway $core
$cc $flags -fPIC -shared -fvisibility=hidden -o "$out/specweb99.so" module.c store_folder.c files.c $core

if echo '#include <fcgiapp.h>' | $cc -E - >/dev/null 2>&1; then
    $cc $flags -o "$out/specweb99-fastcgi" fastcgi.c $gateway $core -lfcgi
else
    left_out specweb99-fastcgi "the package libfcgi-dev is missing"
fi

if command -v clang >/dev/null && command -v wasm-ld >/dev/null && [ -e /usr/include/wasm32-wasi/string.h ]; then
    clang --target=wasm32-wasi -mexec-model=reactor $flags -Os -fvisibility=hidden -Wl,--strip-all \
        -o "$out/specweb99.wasm" module.c store_fetch.c $core
else
    left_out specweb99.wasm "one of the packages clang, lld, wasi-libc, libclang-rt-14-dev-wasm32 is missing"
fi
