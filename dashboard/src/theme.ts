/** The colours of the style sheet, for canvases. */

/** Colours by their role. */
export interface ThemeColors {
  ink: string;
  quiet: string;
  line: string;
  paper: string;
  series: (name: string) => string;
}

let known: ThemeColors | null = null;
const listeners: (() => void)[] = [];

export function colors(): ThemeColors {
  if (!known) {
    const style = getComputedStyle(document.documentElement);
    const color = (name: string) => style.getPropertyValue(`--${name}`).trim();
    known = { ink: color("ink"), quiet: color("quiet"), line: color("line"), paper: color("raised"), series: color };
  }
  return known;
}

/** Runs when the system changes between dark and light. */
export function onThemeChange(listener: () => void): void {
  listeners.push(listener);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  known = null;
  for (const listener of listeners) listener();
});
