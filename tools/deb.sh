#!/bin/sh
# Builds a Debian package of the server into target/deb, and one with its debug symbols. What is in it: the program
# (stripped), the unit, a configuration that serves a page, man pages, completions, the documentation.
# Needs dpkg-dev, binutils and python3. The same program and SOURCE_DATE_EPOCH give the same bytes. BINARY=FILE packs a program that is built already, COMPRESSION=none is quick, REVISION=2 is a
# package that upgrades the usual one.
set -eu
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
if [ -z "${BINARY:-}" ]; then
    cargo build --release --locked -p lowroad
    BINARY=$target/release/lowroad
fi
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)-${REVISION:-1}
arch=$(dpkg --print-architecture)
out=$target/deb
root=$out/root
symbols=$out/symbols
rm -rf "$out"
mkdir -p "$root/DEBIAN" "$symbols/DEBIAN"

echo "packing lowroad $version for $arch"
install -D -m 755 "$BINARY" "$root/usr/bin/lowroad"
id=$(readelf -n "$root/usr/bin/lowroad" | sed -n 's/.*Build ID: //p')
debug=usr/lib/debug/.build-id/$(echo "$id" | cut -c1-2)/$(echo "$id" | cut -c3-).debug
mkdir -p "$symbols/$(dirname "$debug")"
objcopy --only-keep-debug --compress-debug-sections "$root/usr/bin/lowroad" "$symbols/$debug"
# The part of them that cargo leaves beside the program.
if [ -e "$BINARY.dwp" ]; then
    install -D -m 644 "$BINARY.dwp" "$symbols/usr/bin/lowroad.dwp"
fi
strip --strip-unneeded "$root/usr/bin/lowroad"

install -D -m 644 dist/lowroad.service "$root/lib/systemd/system/lowroad.service"
install -m 644 dist/lowroad.socket dist/lowroad-https.socket "$root/lib/systemd/system/"
install -D -m 644 dist/deb/lowroad.sysusers "$root/usr/lib/sysusers.d/lowroad.conf"
install -D -m 644 dist/deb/lowroad.toml "$root/etc/lowroad/lowroad.toml"
install -d -m 755 "$root/etc/lowroad/sites"
install -D -m 644 dist/deb/logrotate "$root/etc/logrotate.d/lowroad"
install -D -m 644 dist/deb/index.html "$root/usr/share/lowroad/site/index.html"
doc=$root/usr/share/doc/lowroad
install -D -m 644 README.md "$doc/README.md"
install -m 644 dist/deb/copyright "$doc/copyright"
./tools/sbom.py "$doc/lowroad.cdx.json"
install -D -m 644 dist/deb/lintian-overrides "$root/usr/share/lintian/overrides/lowroad"
sed -e "s/@VERSION@/$version/" -e "s/@DATE@/$(date -uR -d "@$SOURCE_DATE_EPOCH")/" dist/deb/changelog | gzip -9n > "$doc/changelog.Debian.gz"
find docs -type f \( -name '*.md' -o -name '*.svg' -o -name '*.json' -o -name '*.yml' \) | while read -r page; do install -D -m 644 "$page" "$doc/$page"; done
install -D -m 644 examples/lowroad.toml "$doc/examples/lowroad.toml"
install -m 644 'examples/lowroad-attach@.service' dist/lowroad-unprivileged.conf "$doc/examples/"

man=$root/usr/share/man
"$BINARY" man-pages "$man"
gzip -9n "$man"/man?/*
"$BINARY" completions bash | install -D -m 644 /dev/stdin "$root/usr/share/bash-completion/completions/lowroad"
"$BINARY" completions zsh | install -D -m 644 /dev/stdin "$root/usr/share/zsh/vendor-completions/_lowroad"
"$BINARY" completions fish | install -D -m 644 /dev/stdin "$root/usr/share/fish/vendor_completions.d/lowroad.fish"

# dpkg-shlibdeps reads the libraries that the program names, and wants a source package around it.
mkdir -p "$out/debian"
printf 'Source: lowroad\n\nPackage: lowroad\nArchitecture: any\n' > "$out/debian/control"
depends=$(cd "$out" && dpkg-shlibdeps -O root/usr/bin/lowroad 2>/dev/null | sed 's/^shlibs:Depends=//')

control() { # name, folder, depends, description
    cat > "$2/DEBIAN/control" <<END
Package: $1
Version: $version
Architecture: $arch
Maintainer: The Lowroad developers <developers@lowroad.invalid>
Installed-Size: $(du -sk "$2" | cut -f1)
Depends: $3
Section: httpd
Priority: optional
Description: $4
END
}
control lowroad "$root" "$depends, systemd | systemd-standalone-sysusers | systemd-sysusers" "web server and accelerator that answers at the lowest level
 Serves files, programs and origins; caches by RFC 9111; answers hot requests in
 the kernel's soft interrupt (eBPF), also in front of other servers."
control lowroad-dbgsym "$symbols" "lowroad (= $version)" "debug symbols for lowroad"
for script in postinst prerm postrm; do install -m 755 "dist/deb/$script" "$root/DEBIAN/$script"; done
printf '/etc/lowroad/lowroad.toml\n/etc/logrotate.d/lowroad\n' > "$root/DEBIAN/conffiles"

dpkg-deb -Z"${COMPRESSION:-xz}" --root-owner-group --build "$root" "$out/lowroad_${version}_$arch.deb" > /dev/null
dpkg-deb -Z"${COMPRESSION:-xz}" --root-owner-group --build "$symbols" "$out/lowroad-dbgsym_${version}_$arch.deb" > /dev/null
rm -rf "$root" "$symbols" "$out/debian"
ls -l "$out"/*.deb
