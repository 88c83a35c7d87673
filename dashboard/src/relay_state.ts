/** What `lowroad dashboard` adds to the service: the levels below the server, and whether changes are allowed. */

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
  /** `null`: this user may not see them. */
  levels: SoftirqLevel[] | null;
}

const INTERVAL_MS = 2000;
/** Readings that a rate is computed over. */
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

  /** Reads the state again and again; ends if this is no relay. */
  async follow(): Promise<void> {
    for (;;) {
      try {
        const response = await fetch(this.url);
        this.isRelay = response.ok;
        if (response.status === 404) return;
        if (response.ok) this.take((await response.json()) as RelayState, Date.now());
      } catch {
        // The event stream reports a lost connection.
      }
      await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS));
    }
  }

  /** Whether the rates are known, or known to be none: before, a chart would begin with a step. */
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
    // A level that was attached anew counts from 0.
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
