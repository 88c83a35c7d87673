// A module in Go that greets, as WebAssembly: `make -f wasm.mk go` builds it.
package main

import "hello/lowroad"

// The server calls what is exported; main is not called.
func main() {}

//go:wasmexport lowroad_abi
func abi() uint32 { return lowroad.ABI }

//go:wasmexport lowroad_handle
func handle(state uint32, number uint32, event uint32, detail uint32) int32 {
	call := lowroad.Call(number)
	name, found := call.Get(lowroad.Parameter, "name")
	if !found {
		name = "World"
	}
	call.Field("Content-Type", "text/plain; charset=utf-8")
	call.Send("Hello, " + name + ", from Go\n")
	return lowroad.Done
}
