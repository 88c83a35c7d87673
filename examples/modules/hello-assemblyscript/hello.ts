// A module in AssemblyScript that greets: `make` builds hello.wasm.

import { ABI, Call, Next, What } from "./lowroad";

export function lowroad_abi(): u32 {
  return ABI;
}

export function lowroad_handle(state: usize, number: u32, event: i32, detail: u32): i32 {
  const call = new Call(number);
  const name = call.get(What.Parameter, "name");
  call.field("Content-Type", "text/plain; charset=utf-8");
  call.send("Hello, " + (name === null ? "World" : name) + ", from AssemblyScript\n");
  return Next.Done;
}
