# Builds the WebAssembly examples anew. The results are kept beside the sources, so that nobody needs
# the compilers: clang and lld for C, Debian's rustc with libstd-rust-dev-wasm32 for Rust, and npm for
# AssemblyScript. That of Go, from 1.24 on, is not kept. OUT is where they go, each as NAME.wasm.

API := ../../crates/module
SHELL := /bin/sh
OUT ?= .
BUILD := $(or $(TMPDIR),/tmp)/lowroad-examples-$(shell id -u)
CLANG ?= clang
# The compiler that has the library for wasm32; on Debian the packaged one.
WASM_RUSTC ?= /usr/bin/rustc
# A small stack, since an instance's memory is cleared after each request.
STACK := -zstack-size=16384

.PHONY: all c rust assemblyscript go
all: c rust assemblyscript

c:
	$(CLANG) --target=wasm32 -ffreestanding -nostdlib -Os -Wall -Wextra -I$(API)/include \
		-Wl,--no-entry,--strip-all,$(STACK) -o $(OUT)/hello-wasm-c.wasm hello-wasm-c/hello.c

rust:
	mkdir -p $(BUILD)
	$(WASM_RUSTC) --edition 2021 --crate-type rlib --crate-name lowroad_module --target wasm32-unknown-unknown \
		-C opt-level=s -C panic=abort -C embed-bitcode=yes -o $(BUILD)/liblowroad_module.rlib $(API)/src/lib.rs
	$(WASM_RUSTC) --edition 2021 --crate-type cdylib --crate-name hello --target wasm32-unknown-unknown \
		-C opt-level=s -C lto=fat -C panic=abort -C strip=symbols -C linker=wasm-ld -C link-arg=$(STACK) \
		--extern lowroad_module=$(BUILD)/liblowroad_module.rlib -o $(OUT)/hello-wasm-rust.wasm hello-wasm-rust/src/lib.rs

assemblyscript:
	mkdir -p $(BUILD)/as
	cp hello-assemblyscript/package.json $(BUILD)/as/
	cd $(BUILD)/as && npm install --silent --no-audit --no-fund
	$(BUILD)/as/node_modules/.bin/asc hello-assemblyscript/hello.ts --outFile $(OUT)/hello-assemblyscript.wasm \
		--optimizeLevel 3 --shrinkLevel 2 --noAssert --runtime stub

go:
	cd hello-go && GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags=-s -o $(abspath $(OUT))/hello-go.wasm .
