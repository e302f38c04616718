/** Server-sent events as text (WHATWG HTML, section 9.2). Pure. */

/** How soon a client comes back when a stream ends that was not told to its end. */
export const retryText = (delayMs: number): string => `retry: ${Math.round(delayMs)}\n\n`;

/** Keeps connections open through proxies, and tells a client that the peer is there. */
export const KEEP_ALIVE = ': still here\n\n';

const PARAMS = ',"params":';
const METHOD = '"method":"';

/**
 * One event of a stored notification. It is cut, not parsed: the text was made by `serializeEntry`, which puts method
 * before params and nothing after them.
 */
export function eventText(notification: string, id: string): string {
  const methodAt = notification.indexOf(METHOD) + METHOD.length;
  const method = notification.slice(methodAt, notification.indexOf('"', methodAt));
  const data = notification.slice(notification.indexOf(PARAMS) + PARAMS.length, -1);
  return `event: ${method}\nid: ${id}\ndata: ${data}\n\n`;
}
