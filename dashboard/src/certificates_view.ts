/** The table of certificates: names, source, expiry and renewal. */

import { byId } from "./dom.js";
import { date, fromNow } from "./format.js";
import { gauge, numberOf, samples } from "./snapshot.js";
import type { Snapshot } from "./snapshot.js";
import { LiveTable } from "./table.js";
import type { CellContent, TableRow } from "./table.js";

const EXPIRY = "lowroad_certificate_expiry_timestamp_seconds";
const DAY_S = 86_400;
/** A certificate that expires sooner is a problem: ACME renews earlier, other certificates an operator must replace. */
const SOON_S = 14 * DAY_S;

/** A certificate and its problems. */
export interface CertificateState {
  names: string;
  source: string;
  expiryS: number;
  renewalS: number | null;
  trouble: string | null;
  /** The reason why the last renewal failed. */
  why: string | undefined;
}

export function certificates(snapshot: Snapshot): CertificateState[] {
  const nowS = snapshot.time_ms / 1000;
  return samples(snapshot, EXPIRY).map((sample) => {
    const { names = "", source = "" } = sample.labels;
    const is = (labels: Record<string, string>) => labels["names"] === names && labels["source"] === source;
    const expiryS = numberOf(sample);
    const isFailing = (gauge(snapshot, "lowroad_certificate_renewal_failing", is) ?? 0) > 0;
    return {
      names: names.replaceAll("DNS:", "").replaceAll("IP:", "").split(" ").join(", "),
      source,
      expiryS,
      renewalS: gauge(snapshot, "lowroad_certificate_renewal_timestamp_seconds", is),
      trouble: trouble(expiryS, nowS, isFailing),
      why: snapshot.certificates?.find((note) => is({ names: note.names, source: note.source }))?.last_error ?? undefined,
    };
  });
}

function trouble(expiryS: number, nowS: number, isFailing: boolean): string | null {
  if (expiryS === 0) return isFailing ? "could not be obtained" : "not obtained yet";
  if (expiryS < nowS) return "has expired";
  if (isFailing) return "renewal fails";
  return expiryS - nowS < SOON_S ? `expires ${fromNow(expiryS - nowS)}` : null;
}

export class CertificatesView {
  private readonly section = byId("certificates");
  private readonly table = new LiveTable(
    byId("certificates-table"),
    "Certificates with their names, source and end",
    [{ title: "Names", class: "wide" }, { title: "State" }, { title: "Expires" }, { title: "Renewal" }, { title: "Source" }],
    "No certificates.",
  );

  update(snapshot: Snapshot): void {
    const all = certificates(snapshot);
    this.section.hidden = all.length === 0;
    const nowS = snapshot.time_ms / 1000;
    this.table.update(all.sort((a, b) => a.expiryS - b.expiryS).map((one) => certificateRow(one, nowS)));
  }
}

function certificateRow(one: CertificateState, nowS: number): TableRow {
  const isBad = one.expiryS < nowS || one.trouble === "renewal fails";
  const state: CellContent = one.trouble
    ? { text: one.trouble, state: isBad ? "bad" : "warn", note: one.why }
    : { text: "valid", state: "good" };
  return {
    key: `${one.names}\n${one.source}`,
    cells: [
      one.names,
      state,
      one.expiryS > 0 ? { text: fromNow(one.expiryS - nowS), note: date(one.expiryS) } : "",
      one.renewalS === null ? { text: "by the operator" } : { text: fromNow(one.renewalS - nowS), note: date(one.renewalS) },
      one.source,
    ],
  };
}
