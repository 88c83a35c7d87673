/** The event stream: a snapshot each second, by server-sent events. */

import type { Snapshot } from "./snapshot.js";

export type StreamState = "connecting" | "live" | "lost" | "refused";

/** Time after which an event is late. Events arrive each second. */
const LATE_MS = 4000;
const RETRY_MS = 2000;

interface StreamHandlers {
  snapshot(snapshot: Snapshot): void;
  state(state: StreamState): void;
}

export class EventStream {
  private source: EventSource | null = null;
  private heardAt = 0;
  private state: StreamState | null = null;

  constructor(
    private readonly url: string,
    private readonly handlers: StreamHandlers,
  ) {}

  open(): void {
    this.connect();
    setInterval(() => this.watch(), 1000);
  }

  private connect(): void {
    this.source?.close();
    this.heardAt = Date.now();
    this.change(this.state === null ? "connecting" : this.state);
    const source = (this.source = new EventSource(this.url));
    source.addEventListener("message", (event: MessageEvent<string>) => {
      this.heardAt = Date.now();
      this.change("live");
      this.handlers.snapshot(JSON.parse(event.data) as Snapshot);
    });
    source.addEventListener("error", () => {
      // After an error response a browser does not reconnect (HTML §9.2.3), but the server may be available later.
      if (source.readyState !== EventSource.CLOSED) this.change("lost");
      else void this.refused();
    });
  }

  /** Finds out why a stream was refused: an ended session needs a new link; otherwise the page tries again. */
  private async refused(): Promise<void> {
    this.change("lost");
    try {
      const response = await fetch(this.url.replace("events", "status"));
      if (response.status === 401) return this.change("refused");
    } catch {
      // The server or the command has ended; it may be started again.
    }
    setTimeout(() => this.connect(), RETRY_MS);
  }

  private watch(): void {
    if (this.state === "live" && Date.now() - this.heardAt > LATE_MS) {
      this.change("lost");
      this.connect();
    }
  }

  private change(state: StreamState): void {
    if (state === this.state) return;
    this.state = state;
    this.handlers.state(state);
  }
}
