/** The form that explains how a URL would be answered, and purges stored responses. */

import { byId, element, setText } from "./dom.js";

/** Targets of a purge that can remove more than one URL's responses. */
export function isBroadTarget(target: string): boolean {
  return target === "all" || target.endsWith("*") || /^(host|tag|group):/.test(target);
}

/** Completes a URL without a scheme, for which http is the default. */
export function completeUrl(text: string): string {
  return text.includes("://") ? text : `http://${text}`;
}

/** The effect of a purge, from the server's report: `purged 80 443 responses=2`. */
export function purgeText(report: string, isSoft: boolean): string {
  const kept = report.startsWith("purged-for-now") ? " After a restart, the disk cache may have them again." : "";
  const count = /\bresponses=(\d+)/.exec(report)?.[1];
  if (count === undefined) return `Purged. The matching responses were not counted.${kept}`;
  if (count === "0") return "Nothing was purged: no stored response matched. Responses being fetched now will not be reused.";
  const responses = count === "1" ? "1 stored response was" : `${count} stored responses were`;
  return `${responses} ${isSoft ? "made stale" : "purged"}.${kept}`;
}

export class UrlTool {
  private readonly form = byId<HTMLFormElement>("url-form");
  private readonly url = byId<HTMLInputElement>("url");
  private readonly field = byId<HTMLInputElement>("url-field");
  private readonly soft = byId<HTMLInputElement>("soft");
  private readonly result = byId("url-result");
  private readonly dialog = byId<HTMLDialogElement>("purge-dialog");
  private readonly purgeButton = byId<HTMLButtonElement>("purge");
  /** Whether the dialog asks about a row of the hottest URLs. */
  private isRowPurge = false;

  constructor() {
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      const button = event.submitter?.id;
      void (button === "purge" ? this.confirmPurge() : this.explain());
    });
    byId("purge-cancel").addEventListener("click", () => this.dialog.close());
    byId("purge-confirm").addEventListener("click", () => {
      const { isRowPurge } = this;
      this.dialog.close();
      void this.purge().then(() => isRowPurge && this.showResult());
    });
    this.dialog.addEventListener("close", () => (this.isRowPurge = false));
  }

  /** Explains a URL, and moves the focus to the result. */
  async explainUrl(url: string): Promise<void> {
    [this.url.value, this.field.value] = [url, ""];
    await this.explain();
    this.showResult();
  }

  /** Purges a URL after a confirmation, and moves the focus to the result. */
  confirmPurgeOf(url: string): void {
    [this.url.value, this.soft.checked] = [url, false];
    this.isRowPurge = true;
    this.ask(`Purge the stored responses of ${url}?`);
  }

  setReadOnly(isReadOnly: boolean): void {
    this.purgeButton.disabled = isReadOnly;
    byId("read-only").hidden = !isReadOnly;
  }

  private async explain(): Promise<void> {
    const query = new URLSearchParams({ url: completeUrl(this.url.value.trim()) });
    if (this.field.value.trim() !== "") query.append("header", this.field.value.trim());
    await this.run(`v1/explain?${query}`, "GET", (text) => text);
  }

  private confirmPurge(): void | Promise<void> {
    const target = this.url.value.trim();
    if (!isBroadTarget(target)) return this.purge();
    this.ask(target === "all" ? "Purge all stored responses?" : `Purge all stored responses of ${target}?`);
  }

  private ask(question: string): void {
    setText(byId("purge-question"), question);
    this.dialog.showModal();
  }

  private showResult(): void {
    this.result.scrollIntoView({ block: "nearest" });
    this.result.focus();
  }

  private async purge(): Promise<void> {
    const query = new URLSearchParams({ target: this.url.value.trim() });
    const isSoft = this.soft.checked;
    if (isSoft) query.append("soft", "1");
    await this.run(`v1/purge?${query}`, "POST", (report) => purgeText(report, isSoft));
  }

  private async run(target: string, method: "GET" | "POST", describe: (text: string) => string): Promise<void> {
    this.result.hidden = false;
    this.result.classList.remove("failed");
    this.result.replaceChildren(element("p", {}, "…"));
    try {
      const response = await fetch(target, { method });
      const text = response.ok ? describe(await response.text()) : await detail(response);
      this.show(text, response.ok);
    } catch {
      this.show("The server could not be reached.", false);
    }
  }

  private show(text: string, isSuccess: boolean): void {
    this.result.classList.toggle("failed", !isSuccess);
    this.result.replaceChildren(element("pre", {}, text.trimEnd()));
  }
}

/** The detail of a problem (RFC 9457). */
async function detail(response: Response): Promise<string> {
  const fallback = `The server answered with status ${response.status}.`;
  try {
    const problem = (await response.json()) as { detail?: string };
    return problem.detail ?? fallback;
  } catch {
    return fallback;
  }
}
