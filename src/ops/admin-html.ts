/** The little HTML that the operators' pages are made of. Everything that comes from outside is escaped here. */

export interface Html {
  readonly html: string;
}
export type Cell = string | Html;

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};
export const escapeHtml = (text: string): string => text.replace(/[&<>"']/g, (found) => ENTITIES[found] ?? found);

export const link = (path: string, text: string): Html => ({
  html: `<a href="${escapeHtml(path)}">${escapeHtml(text)}</a>`,
});

const cell = (value: Cell): string => (typeof value === 'string' ? escapeHtml(value) : value.html);

export function table(head: readonly string[], rows: readonly (readonly Cell[])[], empty: string): string {
  if (rows.length === 0) return `<p class="empty">${escapeHtml(empty)}</p>`;
  const headRow = head.map((name) => `<th scope="col">${escapeHtml(name)}</th>`).join('');
  const body = rows.map((row) => `<tr>${row.map((value) => `<td>${cell(value)}</td>`).join('')}</tr>`).join('');
  return `<div class="wide"><table><thead><tr>${headRow}</tr></thead><tbody>${body}</tbody></table></div>`;
}

const STYLE = `
:root{color-scheme:light dark;--line:#8884;--soft:#5f5f5f}
@media(prefers-color-scheme:dark){:root{--soft:#a8a8a8}}
body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;padding:0 1.5rem;max-width:90rem}
h1{font-size:1.25rem;overflow-wrap:anywhere}h2{font-size:1rem;margin-top:2rem}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.35rem .9rem .35rem 0;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:500}.empty{color:var(--soft)}a{color:inherit}
button{font:inherit;padding:.25rem .9rem}`;

/** @param parts HTML that is already escaped */
export function page(title: string, parts: readonly string[]): string {
  const home = title === 'Homing' ? '' : `<p>${link('/admin', 'All nodes and workers').html}</p>`;
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${escapeHtml(title)}</title><style>${STYLE}</style></head>
<body><main>${home}<h1>${escapeHtml(title)}</h1>${parts.join('')}</main></body></html>`;
}

export function age(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1_000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3_600)} h` : `${Math.round(seconds / 86_400)} d`;
}

export function bytes(count: number): string {
  if (count < 1_024) return `${count} B`;
  if (count < 1_048_576) return `${(count / 1_024).toFixed(1)} KiB`;
  return `${(count / 1_048_576).toFixed(1)} MiB`;
}
