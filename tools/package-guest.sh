#!/bin/sh
# Installs the Debian package in a Debian 12 guest that QEMU boots with systemd, and tries it there: units, root-only
# keys, a certificate of a test authority, reload, logrotate, a restart of the machine, upgrade, removal. Prints a line
# for each check, and ends with 1 if one failed.
# Needs root, mmdebstrap, qemu-system-x86, e2fsprogs, dpkg-dev, binutils, and pebble (built with Go where it is missing).
# BINARY=FILE packs a program that is built already. CACHE=FOLDER keeps the guest's system, which is made once a month.
set -eu
cd "$(dirname "$0")/.."

mirror=${MIRROR:-http://deb.debian.org/debian}
base=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lowroad}
version=$(cat tools/package-guest.sh tools/package-guest/init tools/package-guest/trial.service | md5sum | cut -c1-8)
cache=$base/package-guest-$(date +%Y-%m)-$version
pebble=${LOWROAD_PEBBLE:-$base/pebble-v2.10.1}
work=$(mktemp -d)
qemu=
clean() {
    if [ -n "$qemu" ]; then kill "$qemu" 2>/dev/null || true; fi
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' HUP INT TERM

# The guest's system: a kernel, an archive that mounts the disk, and the disk.
make_system() {
    root=$work/root
    include=systemd-sysv,udev,dbus,kmod,busybox-static,iproute2,procps,init-system-helpers
    include=$include,curl,ca-certificates,openssl,logrotate,libelf1,zlib1g
    # shellcheck disable=SC2016 # the shell in the new root expands it
    mmdebstrap --quiet --variant=minbase --include=$include \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --customize-hook='chroot "$1" sh -ec "
            cd /tmp
            apt-get download -qq \$(apt-cache depends linux-image-cloud-amd64 | sed -n \"s/.*Depends: //p\")
            dpkg-deb --fsys-tarfile linux-image-*.deb | tar -x -C / --keep-directory-symlink
            rm linux-image-*.deb
            depmod \$(ls /lib/modules)"' \
        bookworm "$root" "$mirror"
    : > "$root/etc/machine-id"
    echo guest > "$root/etc/hostname"
    echo '127.0.0.1 localhost guest' > "$root/etc/hosts"
    # What is logged by the machine before it restarts counts, too.
    mkdir -p "$root/var/log/journal"
    install -m 644 tools/package-guest/trial.service "$root/etc/systemd/system/"
    ln -s ../trial.service "$root/etc/systemd/system/multi-user.target.wants/trial.service"
    make_initrd "$root"
    cp "$root"/boot/vmlinuz-* "$work/vmlinuz"
    mke2fs -q -t ext4 -F -d "$root" "$work/disk" 1G > "$work/mke2fs" 2>&1 || { cat "$work/mke2fs"; exit 1; }
    rm -rf "$base"/package-guest-*
    mkdir -p "$cache"
    # The disk last: where it is, the rest is.
    mv "$work/vmlinuz" "$work/initrd" "$cache/"
    mv "$work/disk" "$cache/disk"
    rm -rf "$root"
}

make_initrd() { # root
    early=$1/tmp/early
    mkdir -p "$early/dev" "$early/proc" "$early/root" "$early/modules"
    cp "$1/usr/bin/busybox" "$early/busybox" 2>/dev/null || cp "$1/bin/busybox" "$early/busybox"
    install -m 755 tools/package-guest/init "$early/init"
    number=0
    chroot "$1" modprobe -S "$(ls "$1/lib/modules")" -a --show-depends virtio_pci virtio_blk |
        awk '!seen[$2]++ { print $2 }' |
        while read -r file; do
            number=$((number + 1))
            cp "$1$file" "$early/modules/$(printf %02d $number).ko"
        done
    chroot "$1" sh -c 'cd /tmp/early && find . | busybox cpio -o -H newc 2>/dev/null' > "$work/initrd"
    rm -rf "$early"
}

# What the trial needs, as an archive that is the guest's second disk.
make_content() {
    content=$work/content
    mkdir -p "$content"
    for revision in 1 2; do
        REVISION=$revision COMPRESSION=none BINARY=$BINARY CARGO_TARGET_DIR=$work ./tools/deb.sh > /dev/null
        mv "$work"/deb/lowroad_*.deb "$content/$revision.deb"
        rm -rf "$work/deb"
    done
    cp tools/package-guest/*.sh tools/package-guest/*.json "$content/"
    cp "$pebble/pebble" "$pebble/pebble-challtestsrv" "$content/"
    tar -C "$content" -cf "$work/content.tar" .
    truncate -s %512 "$work/content.tar"
    rm -rf "$content"
}

boot() {
    # Without cmpxchg16b: see the lab's guests.
    timeout "${LIMIT_S:-900}" qemu-system-x86_64 -M q35 -cpu max,-cx16 -accel tcg,thread=multi -smp 2 -m 1024 \
        -display none -nodefaults -no-user-config \
        -kernel "$cache/vmlinuz" -initrd "$cache/initrd" \
        -append 'console=ttyS0 quiet mitigations=off panic=-1 systemd.getty_auto=no systemd.show_status=no' \
        -drive "file=$cache/disk,if=virtio,format=raw,snapshot=on,cache=unsafe" \
        -drive "file=$work/content.tar,if=virtio,format=raw,readonly=on" \
        -serial "file:$work/console" -serial "file:$work/result" &
    qemu=$!
    wait "$qemu" || echo "FAILED: the guest did not end by itself" >> "$work/result"
    qemu=
}

if [ "$(id -u)" != 0 ]; then
    echo 'the guest is made as root: sudo make test-deb' >&2
    exit 1
fi
if [ ! -e "$pebble/pebble" ]; then
    GOBIN=$pebble GOFLAGS=-p=1 go install github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1 \
        github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv@v2.10.1
fi
if [ ! -e "$cache/disk" ]; then make_system; fi
if [ -z "${BINARY:-}" ]; then
    cargo build --release --locked -p lowroad
    BINARY=${CARGO_TARGET_DIR:-target}/release/lowroad
fi
make_content
boot
tr -d '\r' < "$work/result" | tee "$work/lines"
if ! grep -q '^done$' "$work/lines"; then
    echo 'FAILED: the trial did not come to its end; the console:'
    tail -n 30 "$work/console"
    exit 1
fi
! grep -q '^FAILED' "$work/lines"
