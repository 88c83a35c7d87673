// Package lowroad is the module interface of the Lowroad web server for Go's WebAssembly. docs/modules.md explains it; the
// numbers and names are those of lowroad.h.
package lowroad

import "unsafe"

// ABI is the version of the interface.
const ABI = 1

// What of a request Get gives.
const (
	Method    = 1
	Target    = 2
	Path      = 3
	Query     = 4
	Host      = 5
	Peer      = 6
	Field     = 7
	Cookie    = 8
	Parameter = 9
	Fields    = 10
	Root      = 11
	Setting   = 12
	Worker    = 13
)

// Why lowroad_handle is called.
const (
	Request   = 1
	Body      = 2
	BodyEnd   = 3
	Timer     = 4
	Fetched   = 5
	Continued = 6
	Room      = 7
	Gone      = 8
)

// What lowroad_handle returns.
const (
	Failed = -1
	Done   = 0
	Wait   = 1
)

// How grave a line of the log is.
const (
	Error = 0
	Warn  = 1
	Info  = 2
	Debug = 3
)

//go:wasmimport lowroad get
func get(call, what uint32, name unsafe.Pointer, nameLen uint32, to unsafe.Pointer, room uint32) int64

//go:wasmimport lowroad read
func read(call, from uint32, to unsafe.Pointer, room uint32) int64

//go:wasmimport lowroad left
func left(call, from uint32) int64

//go:wasmimport lowroad status
func status(call, status uint32) int32

//go:wasmimport lowroad field
func field(call uint32, name unsafe.Pointer, nameLen uint32, value unsafe.Pointer, valueLen uint32) int32

//go:wasmimport lowroad send
func send(call uint32, from unsafe.Pointer, length uint32) int32

//go:wasmimport lowroad send_stored
func sendStored(call uint32, path unsafe.Pointer, pathLen uint32) int32

//go:wasmimport lowroad flush
func flush(call uint32) int32

//go:wasmimport lowroad timer
func timer(call, afterMs uint32) int32

//go:wasmimport lowroad fetch
func fetch(call uint32, target unsafe.Pointer, targetLen uint32) int32

//go:wasmimport lowroad fetched
func fetched(call, number uint32) int32

//go:wasmimport lowroad log
func log(call, level uint32, text unsafe.Pointer, textLen uint32) int32

// Call is a request that is being answered.
type Call uint32

func at(text string) unsafe.Pointer { return unsafe.Pointer(unsafe.StringData(text)) }

// Get is a value of the request as text, and whether there is one.
func (call Call) Get(what uint32, name string) (string, bool) {
	room := make([]byte, 256)
	for {
		length := get(uint32(call), what, at(name), uint32(len(name)), unsafe.Pointer(&room[0]), uint32(len(room)))
		switch {
		case length < 0:
			return "", false
		case length <= int64(len(room)):
			return string(room[:length]), true
		}
		room = make([]byte, length)
	}
}

// Read takes what of the body (0), or of a fetch, is at hand.
func (call Call) Read(from uint32) []byte {
	length := left(uint32(call), from)
	if length <= 0 {
		return nil
	}
	room := make([]byte, length)
	return room[:max(read(uint32(call), from, unsafe.Pointer(&room[0]), uint32(length)), 0)]
}

// Status sets the status, 200 to 599.
func (call Call) Status(code uint32) bool { return status(uint32(call), code) >= 0 }

// Field adds a field to the response.
func (call Call) Field(name, value string) bool {
	return field(uint32(call), at(name), uint32(len(name)), at(value), uint32(len(value))) >= 0
}

// Send appends text to the body. 1: there is room for more; 0: wait for Room; -1: refused.
func (call Call) Send(text string) int32 { return send(uint32(call), at(text), uint32(len(text))) }

// SendStored appends what the site has for a path.
func (call Call) SendStored(path string) bool {
	return sendStored(uint32(call), at(path), uint32(len(path))) >= 0
}

// Flush sends what is there so far.
func (call Call) Flush() bool { return flush(uint32(call)) >= 0 }

// Timer has the event of this name come after so many milliseconds.
func (call Call) Timer(afterMs uint32) bool { return timer(uint32(call), afterMs) >= 0 }

// Fetch begins to get a path of the site or an http:// URL; it gives the number of the fetch, or -1.
func (call Call) Fetch(target string) int32 {
	return fetch(uint32(call), at(target), uint32(len(target)))
}

// Fetched is the status of a fetch that is over; -1 if it is not.
func (call Call) Fetched(number uint32) int32 { return fetched(uint32(call), number) }

// Log writes a line to the server's log.
func (call Call) Log(level uint32, text string) {
	log(uint32(call), level, at(text), uint32(len(text)))
}
