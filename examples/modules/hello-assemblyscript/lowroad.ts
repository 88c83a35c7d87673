// The module interface of the Lowroad web server for AssemblyScript. docs/modules.md explains it;
// the numbers and names are those of lowroad.h.

/** The version of the interface. */
export const ABI: u32 = 1;

/** Why `lowroad_handle` is called. */
export enum Event {
  Request = 1,
  Body = 2,
  BodyEnd = 3,
  Timer = 4,
  Fetched = 5,
  Continued = 6,
  Room = 7,
  Gone = 8,
}

/** What `lowroad_handle` returns. */
export enum Next {
  Failed = -1,
  Done = 0,
  Wait = 1,
}

/** What `Call.get` gives. */
export enum What {
  Method = 1,
  Target = 2,
  Path = 3,
  Query = 4,
  Host = 5,
  Peer = 6,
  Field = 7,
  Cookie = 8,
  Parameter = 9,
  Fields = 10,
  Root = 11,
  Setting = 12,
  Worker = 13,
}

/** How grave a line of the log is. */
export enum Level {
  Error = 0,
  Warn = 1,
  Info = 2,
  Debug = 3,
}

@external("lowroad", "get")
declare function raw_get(call: u32, what: u32, name: usize, name_len: usize, to: usize, room: usize): i64;
@external("lowroad", "read")
declare function raw_read(call: u32, from: u32, to: usize, room: usize): i64;
@external("lowroad", "left")
declare function raw_left(call: u32, from: u32): i64;
@external("lowroad", "status")
declare function raw_status(call: u32, status: u32): i32;
@external("lowroad", "field")
declare function raw_field(call: u32, name: usize, name_len: usize, value: usize, value_len: usize): i32;
@external("lowroad", "send")
declare function raw_send(call: u32, from: usize, len: usize): i32;
@external("lowroad", "send_stored")
declare function raw_send_stored(call: u32, path: usize, path_len: usize): i32;
@external("lowroad", "flush")
declare function raw_flush(call: u32): i32;
@external("lowroad", "timer")
declare function raw_timer(call: u32, after_ms: u32): i32;
@external("lowroad", "fetch")
declare function raw_fetch(call: u32, target: usize, target_len: usize): i32;
@external("lowroad", "fetched")
declare function raw_fetched(call: u32, number: u32): i32;
@external("lowroad", "log")
declare function raw_log(call: u32, level: u32, text: usize, text_len: usize): i32;
@external("lowroad", "now_ms")
declare function raw_now_ms(): u64;

function bytes(text: string): ArrayBuffer {
  return String.UTF8.encode(text);
}

/** A request being answered. */
export class Call {
  constructor(private number: u32) {}

  /** A value of the request as text; null if there is none. */
  get(what: What, name: string = ""): string | null {
    const wanted = bytes(name);
    let room = new ArrayBuffer(256);
    let len = raw_get(this.number, what, changetype<usize>(wanted), wanted.byteLength, changetype<usize>(room), 256);
    if (len < 0) return null;
    if (len > 256) {
      room = new ArrayBuffer(<i32>len);
      raw_get(this.number, what, changetype<usize>(wanted), wanted.byteLength, changetype<usize>(room), <usize>len);
    }
    return String.UTF8.decodeUnsafe(changetype<usize>(room), <usize>len);
  }

  /** Takes what of the body (0), or of a fetch, is at hand. */
  read(from: u32 = 0): ArrayBuffer {
    const len = raw_left(this.number, from);
    const room = new ArrayBuffer(<i32>max(len, 0));
    raw_read(this.number, from, changetype<usize>(room), room.byteLength);
    return room;
  }

  /** Sets the status, 200 to 599. */
  status(status: u32): bool {
    return raw_status(this.number, status) >= 0;
  }

  /** Adds a field to the response. */
  field(name: string, value: string): bool {
    const n = bytes(name), v = bytes(value);
    return raw_field(this.number, changetype<usize>(n), n.byteLength, changetype<usize>(v), v.byteLength) >= 0;
  }

  /** Appends text to the body. 1: there is room for more; 0: wait for `Event.Room`; -1: refused. */
  send(text: string): i32 {
    return this.sendBytes(bytes(text));
  }

  /** Appends bytes to the body. */
  sendBytes(body: ArrayBuffer): i32 {
    return raw_send(this.number, changetype<usize>(body), body.byteLength);
  }

  /** Appends what the site has for a path. */
  sendStored(path: string): bool {
    const p = bytes(path);
    return raw_send_stored(this.number, changetype<usize>(p), p.byteLength) >= 0;
  }

  /** Sends what is there so far. */
  flush(): bool {
    return raw_flush(this.number) >= 0;
  }

  /** `Event.Timer` comes after so many milliseconds. */
  timer(afterMs: u32): void {
    raw_timer(this.number, afterMs);
  }

  /** Begins to get a path of the site or an `http://` URL; gives the number of the fetch, or -1. */
  fetch(target: string): i32 {
    const t = bytes(target);
    return raw_fetch(this.number, changetype<usize>(t), t.byteLength);
  }

  /** The status of a fetch that is over; -1 if it is not. */
  fetched(number: u32): i32 {
    return raw_fetched(this.number, number);
  }

  /** Makes the response a redirect. */
  redirect(status: u32, where: string): bool {
    return this.status(status) && this.field("Location", where);
  }

  /** Anybody may store the response for so many seconds. */
  cache(seconds: u32): bool {
    return this.field("Cache-Control", "public, max-age=" + seconds.toString());
  }

  /** Writes a line to the server's log. */
  log(level: Level, text: string): void {
    const t = bytes(text);
    raw_log(this.number, level, changetype<usize>(t), t.byteLength);
  }
}

/** Milliseconds since 1970. */
export function nowMs(): u64 {
  return raw_now_ms();
}
