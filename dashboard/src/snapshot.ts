/** The snapshots of the admin service (`/v1/snapshot`, `/v1/events`); the OpenAPI document describes them. */

/** Durations by bucket; bucket i ends at 2^(i/8) seconds. */
export interface DurationValue {
  count: number;
  sum: number;
  buckets: [number, number][];
}

export type MetricLabels = Record<string, string>;

export interface MetricSample {
  labels: MetricLabels;
  value?: number | DurationValue;
}

export interface MetricFamily {
  type: "counter" | "gauge" | "histogram" | "info";
  samples: MetricSample[];
}

/** Texts about an upstream server, which metrics can't contain. */
export interface UpstreamNote {
  origin: string;
  server: string;
  /** The operator's decision: `ready`, `drain`, `down` or `force`. */
  state: string;
  health: string | null;
  latest_failure: string | null;
}

/** A certificate, and the error of its last renewal. */
export interface CertificateNote {
  names: string;
  source: string;
  last_error: string | null;
}

/** A line of the error log. */
export interface LogLine {
  time_ms: number;
  level: "error" | "warn" | "info" | "debug";
  message: string;
}

/** A URL with many requests. The numbers are estimates. */
export interface HotUrl {
  url: string;
  site: string;
  host: string;
  path: string;
  is_cut: boolean;
  level: string;
  levels: Record<string, number>;
  rate: number;
  error: number;
  share: number;
}

export interface Snapshot {
  time_ms: number;
  metrics: Record<string, MetricFamily>;
  upstreams?: UpstreamNote[];
  certificates?: CertificateNote[];
  urls?: { half_life_s: number; total_rate: number; urls: HotUrl[] };
  errors?: LogLine[];
}

/** Selects samples by their labels. */
export type LabelFilter = (labels: MetricLabels) => boolean;

export const EVERY_SAMPLE: LabelFilter = () => true;

export function samples(snapshot: Snapshot, name: string): MetricSample[] {
  return snapshot.metrics[name]?.samples ?? [];
}

/** The sum of a family's numbers; `null` if it has none. */
export function gauge(snapshot: Snapshot, name: string, filter = EVERY_SAMPLE): number | null {
  const chosen = samples(snapshot, name).filter((sample) => filter(sample.labels));
  if (chosen.length === 0) return null;
  return chosen.reduce((sum, sample) => sum + numberOf(sample), 0);
}

export function numberOf(sample: MetricSample): number {
  return typeof sample.value === "number" ? sample.value : 0;
}

/** Identifies a sample within its family. The service writes labels in one order. */
export function labelKey(labels: MetricLabels): string {
  return JSON.stringify(labels);
}
