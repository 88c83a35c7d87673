# What a newcomer types. Everything else is in HACKING.md.

SITE ?= examples/site
FUZZ_SECONDS ?= 10
LISTEN ?= 127.0.0.1:8080
export CARGO_TERM_COLOR ?= auto

.PHONY: run test check audit fuzz bench deb test-deb image reproducible clean packages test-packages test-peers

# All that the sample site can use. WebAssembly and SQL pages double the time of the build (docs/performance.md).
FEATURES ?= image,modules,programs,softirq

# Builds the server and serves the sample site.
run: packages examples/site/downloads/large.bin
	cargo build --release --locked -p lowroad --no-default-features --features $(FEATURES)
	$(or $(CARGO_TARGET_DIR),./target)/release/lowroad serve $(SITE) --listen $(LISTEN) --listing

# Everything that is checked: form, units, simulator, sockets, browser, fuzz targets.
# The fuzz targets repeat themselves here; `make fuzz` looks for new inputs.
test: test-packages check test-peers
	FUZZ_SEED=1 ./fuzz/run.sh $(FUZZ_SECONDS)
	./tools/test.sh

check: audit
	@./tools/language.py || true
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- --deny warnings
	cd lab && cargo fmt --check
	cd lab && cargo clippy --locked --all-targets -- --deny warnings
	cd unikernel && cargo fmt --all --check
	cd unikernel && cargo clippy --locked --workspace --all-targets -- --deny warnings

# Licences, sources and known vulnerabilities of the dependencies.
audit:
	./tools/audit.sh

fuzz:
	./fuzz/run.sh $(FUZZ_SECONDS)

# Instructions a request, in a QEMU guest, of this server and its peers.
bench:
	cargo build --release --locked -p lowroad
	cd lab && cargo build --release --locked
	$(or $(CARGO_TARGET_DIR),./target)/release/lowroad-lab icount --install

# A Debian package, in target/deb.
deb: packages
	@./tools/packages.sh dpkg-dev binutils python3
	./tools/deb.sh

# A container image without a shell, in target/oci: `podman load -i`, or `docker load -i`.
image: packages
	@./tools/packages.sh python3 binutils ca-certificates
	cargo build --release --locked -p lowroad
	mkdir -p $(or $(CARGO_TARGET_DIR),./target)/oci
	strip --strip-unneeded -o $(or $(CARGO_TARGET_DIR),./target)/oci/lowroad $(or $(CARGO_TARGET_DIR),./target)/release/lowroad
	./tools/sbom.py $(or $(CARGO_TARGET_DIR),./target)/oci/lowroad.cdx.json
	./tools/oci_image.py $(or $(CARGO_TARGET_DIR),./target)/oci/lowroad $(or $(CARGO_TARGET_DIR),./target)/oci/lowroad.tar \
		$(or $(CARGO_TARGET_DIR),./target)/oci/lowroad.cdx.json

# Builds the Debian package twice, from nothing, and compares.
reproducible: packages
	@./tools/packages.sh dpkg-dev binutils python3
	./tools/reproducible.sh

# Installs the package in a Debian guest with systemd, and tries it there, as root.
test-deb: packages
	@./tools/packages.sh mmdebstrap qemu-system-x86 e2fsprogs dpkg-dev binutils
	./tools/package-guest.sh

examples/site/downloads/large.bin:
	./examples/make-large.sh

packages:
	@./tools/packages.sh gcc libc6-dev make clang libclang-dev libelf-dev zlib1g-dev pkg-config

test-packages:
	@./tools/packages.sh gcc g++ libc6-dev make clang libclang-dev libelf-dev zlib1g-dev pkg-config curl python3 chromium firefox-esr libnss3-tools brotli zstd qemu-system-x86 iproute2 ethtool nginx-core apache2-bin libfcgi-dev lld wasi-libc libclang-rt-14-dev-wasm32 perl php-fpm mariadb-server postgresql nftables rustc libstd-rust-dev-wasm32 dpkg-dev binutils grub-common grub-pc-bin grub-efi-amd64-bin xorriso mtools ovmf wrk nghttp2-client apache2-utils lintian nodejs valgrind prometheus
	@./tools/cache-suite.sh
	@cd dashboard && npm ci --silent --no-audit --no-fund || echo "dashboard: npm ci failed; its build is not compared"

# The servers that the lab compares with. Without root, or without apt-get, tests of those that are
# missing say so and count as skipped. Built as for the tests: other features would build a part of it twice.
test-peers:
	@cd lab && cargo test --locked --all-targets --no-run
	@if [ "$$(id -u)" = 0 ]; then $(or $(CARGO_TARGET_DIR),./target)/debug/lowroad-lab peers install || true; fi

clean:
	cargo clean
