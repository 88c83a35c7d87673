/** Additions of `lowroad dashboard` to the service: the levels below the server, and whether changes are allowed. */

import type { SoftirqRates } from "./traffic.js";

/** A softirq level, as `lowroad status --json` describes it. */
export interface SoftirqLevel {
  ports: number[];
  interfaces: { name: string; tier: string }[];
  mode: string;
  trouble: string | null;
  published: { now: number; places: number };
  shares: { answered: { requests: number; bytes: number } };
}

export interface RelayState {
  is_read_only: boolean;
  /** `null` if this user may not see them. */
  levels: SoftirqLevel[] | null;
}

const INTERVAL_MS = 2000;
/** The number of readings over which a rate is computed. */
const READING_COUNT = 4;

interface Reading {
  timeMs: number;
  requests: number;
  bytes: number;
}

export class RelayFeed {
  state: RelayState | null = null;
  private isRelay = true;
  private readings: Reading[] = [];

  constructor(private readonly url: string) {}

  /** Reads the state repeatedly; ends if the page does not come from a relay. */
  async follow(): Promise<void> {
    for (;;) {
      try {
        const response = await fetch(this.url);
        this.isRelay = response.ok;
        if (response.status === 404) return;
        if (response.ok) this.take((await response.json()) as RelayState, Date.now());
      } catch {
        // Ignored here: the event stream reports a lost connection.
      }
      await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS));
    }
  }

  /** Whether the rates are known, or known not to exist. A chart that starts earlier would begin with a step. */
  isSettled(): boolean {
    return !this.isRelay || this.readings.length > 1;
  }

  take(state: RelayState, timeMs: number): void {
    this.state = state;
    const sum = (count: (level: SoftirqLevel) => number) => (state.levels ?? []).reduce((all, level) => all + count(level), 0);
    const reading = {
      timeMs,
      requests: sum((level) => level.shares.answered.requests),
      bytes: sum((level) => level.shares.answered.bytes),
    };
    const last = this.readings.at(-1);
    // The counters of a level that was attached again start from 0.
    if (last && reading.requests < last.requests) this.readings = [];
    this.readings = [...this.readings, reading].slice(-READING_COUNT);
  }

  rates(): SoftirqRates {
    const [first, last] = [this.readings[0], this.readings.at(-1)];
    if (!first || !last || first === last) return { requests: 0, bytes: 0 };
    const seconds = (last.timeMs - first.timeMs) / 1000;
    return { requests: (last.requests - first.requests) / seconds, bytes: (last.bytes - first.bytes) / seconds };
  }
}
