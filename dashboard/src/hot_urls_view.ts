/** The table of the URLs with the most requests, with buttons that explain and purge each. */

import { byId } from "./dom.js";
import { amount, percent } from "./format.js";
import type { HotUrl, Snapshot } from "./snapshot.js";
import { LiveTable } from "./table.js";
import type { TableRow } from "./table.js";
import { isBroadTarget } from "./url_tool.js";
import type { UrlTool } from "./url_tool.js";

/** Maximum number of rows. The snapshot contains more URLs. */
const ROW_COUNT_MAX = 25;

/** The URLs to show. While rows are `held`, exactly those stay, so that no button moves away from a pointer. */
export function shownUrls(urls: HotUrl[], held: HotUrl[] | null): HotUrl[] {
  if (!held) return urls.slice(0, ROW_COUNT_MAX);
  const latest = new Map(urls.map((url) => [urlKey(url), url]));
  return held.map((url) => latest.get(urlKey(url)) ?? { ...url, rate: 0, share: 0 });
}

/** Why a URL can't be explained or purged by its text; `null` if it can. */
export function purgeObstacle(url: HotUrl): string | null {
  if (url.is_cut) return "longer than shown here";
  // An asterisk at the end would purge all URLs with this prefix.
  return isBroadTarget(url.url) ? "ends with an asterisk: use the form" : null;
}

function urlKey(url: HotUrl): string {
  return `${url.site}\n${url.url}\n${url.is_cut}`;
}

export class HotUrlsView {
  private readonly place = byId("hot-urls-table");
  private shown: HotUrl[] = [];
  private readonly table = new LiveTable(
    this.place,
    "URLs with the most requests in the last minutes, the hottest first, with the level that answers them",
    [
      { title: "URL", class: "wide" },
      { title: "Requests/s", class: "number" },
      { title: "Level" },
      { title: "Share", class: "number" },
      { title: "Actions", class: "actions" },
    ],
    "No requests in the last minutes.",
  );

  constructor(private readonly tool: UrlTool) {}

  update(snapshot: Snapshot, isReadOnly: boolean): void {
    const isHeld = this.shown.length > 0 && isInUse(this.place);
    this.shown = shownUrls(snapshot.urls?.urls ?? [], isHeld ? this.shown : null);
    this.table.update(this.shown.map((url) => this.row(url, isReadOnly)));
  }

  private row(url: HotUrl, isReadOnly: boolean): TableRow {
    const obstacle = purgeObstacle(url);
    const others = Object.keys(url.levels).filter((level) => level !== url.level);
    return {
      key: urlKey(url),
      cells: [
        { text: url.is_cut ? `${url.url}…` : url.url, note: url.site && url.site !== url.host ? url.site : undefined },
        { text: amount(url.rate), bar: url.share },
        { text: url.level, note: others.length > 0 ? `also ${others.join(", ")}` : undefined },
        percent(url.share),
        {
          text: obstacle ?? "",
          actions: [
            { name: "Explain", subject: url.url, isDisabled: url.is_cut, run: () => void this.tool.explainUrl(url.url) },
            { name: "Purge", subject: url.url, isDisabled: isReadOnly || obstacle !== null, run: () => this.tool.confirmPurgeOf(url.url) },
          ],
        },
      ],
    };
  }
}

/** Whether a pointer or the focus is in an element. After a tap, touch screens keep an element hovered. */
function isInUse(place: HTMLElement): boolean {
  return place.matches(":focus-within") || (matchMedia("(hover: hover)").matches && place.matches(":hover"));
}
