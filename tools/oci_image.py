#!/usr/bin/env python3
"""Builds an OCI image of the server without a daemon: two layers, one with the libraries of the system and one with the
program, in an archive that `podman load` and `docker load` read. The same inputs give the same bytes.

    oci_image.py PROGRAM OUT.tar [BILL_OF_MATERIALS.json]

Strip the program first, as it is copied unchanged. Nothing else is in the image: no shell and no package manager.
COMPRESSION=0 is quick.
"""

import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
# The `nonroot` of distroless images. A number, because Kubernetes checks `runAsNonRoot` by it.
USER = 65532
# Writable folders: the admin socket, certificates and other state, the disk cache.
VOLUMES = ["/run/lowroad", "/var/lib/lowroad", "/var/cache/lowroad"]
# The time of all files, in seconds since 1970: reproducible builds set SOURCE_DATE_EPOCH to the time of the commit.
TIME = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
COMPRESSION = int(os.environ.get("COMPRESSION", "9"))
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Layer:
    """A layer under construction. Parents are added before their children, all with the same time."""

    def __init__(self):
        self.raw = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.raw, mode="w", format=tarfile.PAX_FORMAT)
        self.folders = set()

    def add(self, name, kind, mode, owner=0, data=b""):
        entry = tarfile.TarInfo(name.strip("/"))
        entry.type, entry.mode, entry.mtime, entry.size = kind, mode, TIME, len(data)
        entry.uid = entry.gid = owner
        self.tar.addfile(entry, io.BytesIO(data))

    def folder(self, name, owner=0):
        """Adds a folder and its parents, each once."""
        path = pathlib.PurePosixPath(name)
        for parent in [*reversed(path.parents), path]:
            if str(parent) not in self.folders and str(parent) != "/":
                self.folders.add(str(parent))
                self.add(str(parent), tarfile.DIRTYPE, 0o755, owner if parent == path else 0)

    def file(self, name, data, mode=0o644):
        self.folder(str(pathlib.PurePosixPath(name).parent))
        self.add(name, tarfile.REGTYPE, mode, 0, data)

    def finish(self):
        """The uncompressed and the compressed archive."""
        self.tar.close()
        packed = io.BytesIO()
        with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=COMPRESSION, mtime=0, filename="") as out:
            out.write(self.raw.getvalue())
        return self.raw.getvalue(), packed.getvalue()


def libraries(program):
    """The paths at which the loader finds the libraries of a program, and the loader itself."""
    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    if "not found" in listed:
        sys.exit(f"oci_image.py: a library of {program} is missing:\n{listed}")
    return sorted(set(re.findall(r"(/\S+) \(0x", listed)))


def system_layer(program):
    """The libraries, accounts and certificates of authorities that the program needs."""
    layer = Layer()
    for path in libraries(program):
        layer.file(path, pathlib.Path(path).read_bytes(), 0o755)
    authorities = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
    if authorities.exists():
        layer.file(str(authorities), authorities.read_bytes())
    layer.file("/etc/passwd", f"root:x:0:0:root:/:/none\nlowroad:x:{USER}:{USER}:Lowroad:/:/none\n".encode())
    layer.file("/etc/group", f"root:x:0:\nlowroad:x:{USER}:\n".encode())
    layer.file("/etc/nsswitch.conf", b"hosts: files dns\n")
    layer.add("/tmp", tarfile.DIRTYPE, 0o1777)
    return layer.finish()


def program_layer(program, bill):
    """The program, its bill of materials, a configuration that serves a page, and the folders that the server writes to."""
    layer = Layer()
    layer.file("/usr/bin/lowroad", pathlib.Path(program).read_bytes(), 0o755)
    if bill:
        layer.file("/usr/share/doc/lowroad/lowroad.cdx.json", pathlib.Path(bill).read_bytes())
    layer.file("/etc/lowroad/lowroad.toml", (REPOSITORY / "dist/oci/lowroad.toml").read_bytes())
    layer.folder("/etc/lowroad/sites")
    layer.file("/srv/www/index.html", (REPOSITORY / "dist/deb/index.html").read_bytes())
    for volume in VOLUMES:
        layer.folder(volume, USER)
    return layer.finish()


class Archive:
    """The archive of an image: blobs named by their digests."""

    def __init__(self, out):
        self.tar = tarfile.open(out, mode="w", format=tarfile.PAX_FORMAT)
        self.names = set()

    def file(self, name, data):
        if name not in self.names:
            self.names.add(name)
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(data), 0o644, TIME
            self.tar.addfile(entry, io.BytesIO(data))

    def blob(self, media_type, data):
        """Adds a blob; returns its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        self.file(f"blobs/sha256/{digest}", data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def compact(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def main():
    program, out = sys.argv[1:3]
    bill = sys.argv[3] if len(sys.argv) > 3 else None
    version = re.search(r'^version = "(.*)"', (REPOSITORY / "Cargo.toml").read_text(), re.M)[1]
    architecture = ARCHITECTURES[os.uname().machine]
    layers = [system_layer(program), program_layer(program, bill)]
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Entrypoint": ["/usr/bin/lowroad"],
            "Cmd": ["run", "/etc/lowroad/lowroad.toml"],
            "ExposedPorts": {"8080/tcp": {}},
            "Volumes": {volume: {} for volume in VOLUMES},
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "lowroad",
                "org.opencontainers.image.version": version,
            },
            # Read by Docker and by Podman with its Docker format; times are in nanoseconds.
            "Healthcheck": {
                "Test": ["CMD", "/usr/bin/lowroad", "status", "--admin", "/run/lowroad/admin"],
                "Interval": 10_000_000_000,
                "Timeout": 5_000_000_000,
                "Retries": 3,
            },
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": ["sha256:" + hashlib.sha256(raw).hexdigest() for raw, _ in layers],
        },
    }
    kind = "application/vnd.oci.image"
    name = f"localhost/lowroad:{version}"
    archive = Archive(out)
    archive.file("oci-layout", compact({"imageLayoutVersion": "1.0.0"}))
    described = [archive.blob(f"{kind}.layer.v1.tar+gzip", packed) for _, packed in layers]
    described_config = archive.blob(f"{kind}.config.v1+json", compact(config))
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{kind}.manifest.v1+json",
        "config": described_config,
        "layers": described,
    }
    described_manifest = archive.blob(f"{kind}.manifest.v1+json", compact(manifest))
    described_manifest["annotations"] = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": version,
    }
    archive.file("index.json", compact({"schemaVersion": 2, "manifests": [described_manifest]}))
    # For `docker load`.
    blobs = lambda found: "blobs/" + found["digest"].replace(":", "/")
    docker = {"Config": blobs(described_config), "RepoTags": [name], "Layers": [blobs(found) for found in described]}
    archive.file("manifest.json", compact([docker]))
    archive.tar.close()
    print(f"{out}: {name}, {sum(len(packed) for _, packed in layers) >> 10} KiB in two layers")


if __name__ == "__main__":
    main()
