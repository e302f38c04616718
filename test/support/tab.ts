/**
 * A browser tab as the tests see it: one session over any number of sockets, written from PROTOCOL alone and not with
 * the product's client, so that both can be wrong in different ways. It keeps everything that comes, in order.
 */
import { randomBytes } from 'node:crypto';
import WebSocket from 'ws';
import { type Arrival, entriesOf, isEntry, outputOf } from './recording.js';
import { until, within } from './wait.js';

// biome-ignore lint/suspicious/noExplicitAny: results are looked at, not trusted
export type Json = any;

/** An error that a node answered. `code` is the contract's, or JSON-RPC's number as text where there is none. */
export class RpcFailure extends Error {
  readonly code: string;
  readonly rpcCode: number;
  readonly data: Json;
  constructor(method: string, error: { code: number; message: string; data?: Json }) {
    super(`${method}: ${error.message}`);
    this.code = error.data?.code ?? String(error.code);
    this.rpcCode = error.code;
    this.data = error.data;
  }
}

export interface TabOptions {
  readonly token: string;
  readonly conversation?: string;
  /** Any text; a second tab with the same one looks like the same page. */
  readonly pageNonce?: string;
  readonly name?: string;
  readonly batch?: boolean;
  /** A session to resume that this tab did not open. */
  readonly session?: { readonly sessionId: string; readonly resumeToken: string };
}

/** One WebSocket with its own end. */
export interface Socket {
  readonly ws: WebSocket;
  readonly number: number;
  /** Resolves with the close code when the socket is gone, however that happened. */
  readonly closed: Promise<{ code: number; reason: string; timeMs: number }>;
}

export const websocketUrl = (url: string): string => `${url.replace(/^http/, 'ws').replace(/\/$/, '')}/v1/ws`;

/** Connects without opening a session. Rejects with the HTTP status in `status` when the upgrade is refused. */
export async function dial(
  url: string,
  options: { token?: string; origin?: string; number?: number; protocol?: string } = {},
): Promise<Socket> {
  const headers: Record<string, string> = {};
  if (options.token !== undefined) headers.authorization = `Bearer ${options.token}`;
  const ws = new WebSocket(websocketUrl(url), options.protocol ?? 'homing.v1', {
    headers,
    perMessageDeflate: false,
    maxPayload: 64 * 1024 * 1024,
    ...(options.origin === undefined ? {} : { origin: options.origin }),
  });
  const closed = new Promise<{ code: number; reason: string; timeMs: number }>((resolve) => {
    ws.on('close', (code, reason) => resolve({ code, reason: reason.toString(), timeMs: performance.now() }));
  });
  await within(
    `the upgrade at ${url}`,
    new Promise<void>((resolve, reject) => {
      ws.on('open', () => resolve());
      ws.on('error', reject);
      ws.on('unexpected-response', (_request, response) => {
        response.resume();
        reject(Object.assign(new Error(`upgrade answered ${response.statusCode}`), { status: response.statusCode }));
      });
    }),
  );
  return { ws, number: options.number ?? 1, closed };
}

export type Cursors = Readonly<Record<string, number>>;

export function createTab(options: TabOptions) {
  const conversation = options.conversation ?? 'demo';
  const pageNonce = options.pageNonce ?? randomBytes(8).toString('hex');
  const arrivals: Arrival[] = [];
  const waiting = new Map<number, { method: string; resolve: (value: Json) => void; reject: (error: Error) => void }>();
  /** Commands this tab asked for through its own socket. */
  const ran: string[] = [];
  let counter = 0;
  let requestId = 0;
  let connections = 0;
  let forgottenBefore = 0;
  let socket: Socket | undefined;
  /** How the newest socket ended, if it did. */
  let closedWith: string | undefined;
  let sessionId = options.session?.sessionId ?? '';
  let resumeToken = options.session?.resumeToken ?? '';
  let opened: Json;

  function receive(from: Socket, text: string): void {
    const value: Json = JSON.parse(text);
    for (const message of Array.isArray(value) ? value : [value]) {
      counter += 1;
      const base = { at: counter, timeMs: performance.now(), connection: from.number };
      if (typeof message.method === 'string') {
        arrivals.push({ ...base, type: 'notification', method: message.method, params: message.params ?? {} });
        continue;
      }
      const request = waiting.get(message.id);
      if (request === undefined) continue;
      waiting.delete(message.id);
      arrivals.push({ ...base, type: 'answer', method: request.method, params: message.result ?? message.error });
      if (message.error !== undefined) request.reject(new RpcFailure(request.method, message.error));
      else request.resolve(message.result);
    }
  }

  async function connect(url: string): Promise<Socket> {
    connections += 1;
    const number = connections;
    const next = await dial(url, { token: options.token, number });
    next.ws.on('message', (data) => receive(next, data.toString()));
    next.ws.on('close', (code, reason) => {
      if (socket !== next) return;
      closedWith = `${code} ${reason}`.trim();
      for (const request of waiting.values()) request.reject(new Error(`${request.method}: the socket closed`));
      waiting.clear();
    });
    next.ws.on('error', () => {});
    socket = next;
    closedWith = undefined;
    return next;
  }

  function send(message: object): void {
    if (socket === undefined) throw new Error('the tab has no socket');
    socket.ws.send(JSON.stringify({ jsonrpc: '2.0', ...message }));
  }

  /** @throws RpcFailure with what the node answered */
  function rpc(method: string, params: object = {}, limitMs?: number): Promise<Json> {
    requestId += 1;
    const id = requestId;
    const answer = new Promise<Json>((resolve, reject) => waiting.set(id, { method, resolve, reject }));
    send({ id, method, params });
    return within(`the answer to ${method}`, answer, limitMs);
  }

  /** Highest seq seen of each command, since the tab last forgot. */
  function cursors(): Record<string, number> {
    const highest: Record<string, number> = {};
    for (const arrival of arrivals) {
      if (arrival.at <= forgottenBefore || !isEntry(arrival) || arrival.params.view === true) continue;
      const { commandId, seq } = arrival.params;
      highest[commandId] = Math.max(highest[commandId] ?? 0, seq);
    }
    return highest;
  }

  const name = options.name ?? 'tab';
  const recording = () => arrivals.filter((arrival) => arrival.at > forgottenBefore);

  /** The first arrival that fits, seen or to come. */
  const waitFor = (what: string, fits: (arrival: Arrival) => boolean, limitMs?: number) =>
    until(`${name}: ${what}`, () => recording().find(fits), limitMs, 5).catch((error: Error) => {
      // Nothing comes over a socket that is gone: that, and why, is what a failed test wants to know.
      if (closedWith === undefined) throw error;
      throw new Error(`${error.message}; its socket had closed with ${closedWith}`, { cause: error });
    });

  const tab = {
    name,
    ran,
    get sessionId() {
      return sessionId;
    },
    get resumeToken() {
      return resumeToken;
    },
    /** What the node answered to the last open or resume. */
    get opened() {
      return opened;
    },
    get socket(): Socket {
      if (socket === undefined) throw new Error('the tab has no socket');
      return socket;
    },
    /** Everything since the tab last forgot, in order of arrival. */
    get recording() {
      return recording();
    },
    rpc,
    cursors,

    async open(url: string): Promise<void> {
      await connect(url);
      opened = await rpc('session.open', { conversation, pageNonce, batch: options.batch ?? false, client: 'test' });
      sessionId = opened.sessionId;
      resumeToken = opened.resumeToken;
    },

    /** Comes back over a new socket; with what it has seen unless other cursors are given. */
    async resume(url: string, given: { cursors?: Cursors; pageNonce?: string } = {}): Promise<Json> {
      await connect(url);
      opened = await rpc('session.resume', {
        sessionId,
        resumeToken,
        pageNonce: given.pageNonce ?? pageNonce,
        batch: options.batch ?? false,
        cursors: given.cursors ?? cursors(),
      });
      return opened;
    },

    /** A page reload: memory is gone, the stored session is not. */
    forget(): void {
      forgottenBefore = counter;
    },

    /** The network goes away without a word. */
    async drop(): Promise<void> {
      socket?.ws.terminate();
      await socket?.closed;
    },

    /** Closes the session for good. */
    async close(): Promise<void> {
      await rpc('session.close');
    },

    /** Runs a command and returns its id. */
    async run(spec: object): Promise<string> {
      const { commandId } = await rpc('command.run', spec);
      ran.push(commandId);
      return commandId;
    },

    ack(seqs: Cursors): void {
      send({ method: 'output.ack', params: { cursors: seqs } });
    },

    /** Stops reading: the socket fills up, as behind a sleeping laptop. */
    pauseReading: () => tab.socket.ws.pause(),
    resumeReading: () => tab.socket.ws.resume(),

    entries: (commandId: string) => entriesOf(recording(), commandId),
    outputBytes: (commandId: string, stream?: string) => outputOf(recording(), commandId, stream),
    output: (commandId: string, stream?: string) => outputOf(recording(), commandId, stream).toString('utf8'),

    waitFor,

    /** The `ended` entry of a command. */
    ended: (commandId: string, limitMs?: number): Promise<Arrival> =>
      waitFor(
        `ended of ${commandId}`,
        (a) => a.method === 'command.ended' && a.params.commandId === commandId && a.params.view !== true,
        limitMs,
      ),

    /** Waits until the output of a command holds this text. */
    shows: (commandId: string, text: string, limitMs?: number): Promise<string> =>
      until(
        `${name}: "${text}" in the output of ${commandId}`,
        () => {
          const output = outputOf(recording(), commandId).toString('utf8');
          return output.includes(text) && output;
        },
        limitMs,
        5,
      ),

    async [Symbol.asyncDispose](): Promise<void> {
      if (socket === undefined || socket.ws.readyState === WebSocket.CLOSED) return;
      socket.ws.terminate();
      await socket.closed;
    },
  };
  return tab;
}

export type Tab = ReturnType<typeof createTab>;

/** A tab with an open session at this node. */
export async function openTab(url: string, options: TabOptions): Promise<Tab> {
  const tab = createTab(options);
  await tab.open(url);
  return tab;
}
