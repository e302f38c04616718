/** Requests of the client programs over HTTP; a refusal or a failure is a sentence. */
import { messageOf } from '../errors.js';
import { CliFault, EXIT } from './fault.js';
import type { NodeAddress } from './node-address.js';

const TIMEOUT_MS = 30_000;

const httpUrl = (url: string): string => url.replace(/^ws/, 'http').replace(/[/#?]+$/, '');

/** The body as it came. @throws CliFault status 1 */
export async function ask(
  node: NodeAddress,
  method: 'GET' | 'POST',
  path: string,
  body?: object,
  headers: Readonly<Record<string, string>> = {},
): Promise<string> {
  let response: Response;
  let text: string;
  try {
    response = await fetch(httpUrl(node.url) + path, {
      method,
      headers: {
        ...(node.token === '' ? {} : { authorization: `Bearer ${node.token}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    text = await response.text();
  } catch (error) {
    const cause = error instanceof Error && error.cause !== undefined ? messageOf(error.cause) : messageOf(error);
    throw new CliFault(EXIT.failure, `The node at ${node.url} does not answer: ${cause}.`);
  }
  if (response.ok) return text;
  throw refusal(text, response.status);
}

export async function askJson<T>(...request: Parameters<typeof ask>): Promise<T> {
  return JSON.parse(await ask(...request)) as T;
}

/** The node said no, and why. */
export class Refusal extends CliFault {
  /** Of the contract, where it was the node that answered. */
  readonly code: string | undefined;
  /** Whether the same may be answered later: Redis is away, a balancer has no node, too many requests. */
  readonly passing: boolean;
  constructor(sentence: string, status: number, code?: string) {
    super(EXIT.failure, sentence);
    this.code = code;
    this.passing = status >= 500 || status === 429;
  }
}

function refusal(text: string, status: number): Refusal {
  try {
    const { code, message } = JSON.parse(text) as { code?: string; message?: string };
    if (message !== undefined) return new Refusal(code === undefined ? message : `${message} (${code})`, status, code);
  } catch {
    // Not JSON: something between us and the node answered.
  }
  return new Refusal(`The node answered with status ${status}.`, status);
}
