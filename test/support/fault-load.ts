/**
 * What goes on while things break: applications in many tabs, half of them on the product's SDK and half on the tests' own
 * tab, that run commands, reload, close, kill and come back. Each keeps what its user would have seen, across reloads.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type CommandHandle, connect, type Session, type SessionStorage } from '../../src/client/node.js';
import type { FaultWorld } from './fault-world.js';
import { bytesOf, isEntry } from './recording.js';
import type { Seeded } from './seeded.js';
import { createTab, RpcFailure, type Tab } from './tab.js';

/** An entry as an application got it. */
export interface Seen {
  readonly type: string;
  readonly fromSeq: number;
  readonly seq: number;
  /** When it was made. */
  readonly ts: number;
  /** When it came, by the test's clock. */
  readonly arrivedMs: number;
  /** It came because the page asked to look, not because its session owns the command. */
  readonly view: boolean;
  readonly at?: number;
  readonly bytes?: Buffer;
  readonly reason?: string;
}

/** One page, from the moment it was first opened until its user closed it. */
export interface Application {
  readonly name: string;
  readonly kind: 'sdk' | 'raw';
  readonly principal: string;
  readonly conversation: string;
  /** By command, in order of arrival. */
  readonly seen: Map<string, Seen[]>;
  /** `closed`: by its user. `replaced`: its session was over when it came back. */
  state: 'open' | 'closed' | 'replaced';
  /** How often it was reloaded or moved. */
  comings: number;
  run(spec: object): Promise<string>;
  kill(commandId: string): Promise<void>;
  /** The page goes and comes back with what its tab keeps. */
  reload(): Promise<void>;
  close(): Promise<void>;
  sessionId(): string;
  /** Whether it is attached at the moment, or will never be again. */
  isSettled(): boolean;
  /** What came and went on its connections, for whoever has to find out why. */
  diary(): string[];
  /** Ends its connections without closing anything. */
  dispose(): Promise<void>;
}

/** A command that was asked for: what it prints is known beforehand, byte by byte. */
export interface Asked {
  readonly label: string;
  readonly output: string;
  readonly code: number;
  readonly by: Application;
  killed: boolean;
}

export interface FaultLoad {
  readonly applications: readonly Application[];
  readonly asked: ReadonlyMap<string, Asked>;
  /** Newest thing any application saw of a command, by what the entry says; Infinity once it saw the end. */
  newest(commandId: string): number;
  /** Commands of which something was seen and not yet the end. */
  running(): string[];
  /** Ends what users do; what runs goes on. */
  stop(): Promise<void>;
  /** Resolves when every submit was answered or given up; once nothing is in the way any more. */
  answered(): Promise<void>;
  closeAll(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface LoadOptions {
  readonly tabs: number;
  /** Commands under way at a time, of all together: what does not end here is not added to. */
  readonly commands: number;
  readonly conversations: number;
  /** Where programs write that they were started. */
  readonly folder: string;
}

const HEARTBEAT_MS = 2_000;

export function createFaultLoad(world: FaultWorld, seeded: Seeded, options: LoadOptions): FaultLoad {
  const applications: Application[] = [];
  const asked = new Map<string, Asked>();
  const newest = new Map<string, number>();
  let stopping = false;
  let labels = 0;
  let ended = 0;
  /** Asked for and, as far as is known, never taken. */
  let refused = 0;

  function note(app: Application, commandId: string, entry: Seen): void {
    const list = app.seen.get(commandId) ?? [];
    app.seen.set(commandId, list);
    list.push(entry);
    if (entry.view) return;
    const ts = entry.type === 'ended' ? Number.POSITIVE_INFINITY : entry.ts;
    if (entry.type === 'ended' && newest.get(commandId) !== ts) ended += 1;
    newest.set(commandId, Math.max(newest.get(commandId) ?? 0, ts));
  }

  /** Prints `<label> 1`, `<label> 2` … in bursts; says in a file that it was started, with its own process id. */
  function program(by: Application, chance: Seeded) {
    labels += 1;
    const label = `${by.name}.${labels}`;
    const bursts = chance.between(1, 25);
    const each = chance.pick([1, 1, 2, 5, 40]);
    const code = chance.pick([0, 0, 0, 3]);
    const pause = chance.pick([0.1, 0.2, 0.3, 0.4]);
    const script =
      'echo $$ >> "$1"; n=0; b=0; while [ $b -lt $3 ]; do i=0; while [ $i -lt $4 ]; do n=$((n+1)); echo "$2 $n"; i=$((i+1)); done; b=$((b+1)); sleep $5; done; exit $6';
    const output = Array.from({ length: bursts * each }, (_, i) => `${label} ${i + 1}\n`).join('');
    asked.set(label, { label, output, code, by, killed: false });
    const args = [`${options.folder}/${label}`, label, bursts, each, pause, code].map(String);
    return { argv: ['/bin/sh', '-c', script, 'sh', ...args], labels: { label }, idempotencyKey: label };
  }

  // ---------------------------------------------------------------------------------------------------- what users do

  /** Submits that are repeated until they are answered; those that nobody waits for would come after everything was looked at. */
  const asking = new Set<Promise<unknown>>();
  function asks(submitting: Promise<unknown>): void {
    asking.add(submitting);
    void submitting.finally(() => asking.delete(submitting));
  }

  async function live(lane: number, chance: Seeded): Promise<void> {
    let app = await openApplication(lane, chance);
    while (!stopping) {
      await sleep(chance.between(100, 700));
      if (stopping) break;
      if (app.state === 'replaced' && app.kind === 'raw') {
        app = await openApplication(lane, chance);
        continue;
      }
      const action = chance.weighted({ run: 10, backend: 2, reload: 2, kill: 1, close: 1 });
      const mayRun = asked.size - ended - refused < options.commands;
      try {
        if (action === 'run' && mayRun) asks(app.run(program(app, chance)).catch(() => void refused++));
        if (action === 'backend' && mayRun) asks(submit(app, program(app, chance), chance));
        if (action === 'kill') void kill(app, chance);
        if (action === 'reload') await app.reload();
        if (action === 'close') {
          await app.close();
          app = await openApplication(lane, chance);
        }
      } catch {
        // Redis or a node was away for longer than a user waits; what it did is seen in the listing at the end.
      }
    }
  }

  async function kill(app: Application, chance: Seeded): Promise<void> {
    const busy = [...app.seen.keys()].filter((id) => newest.get(id) !== Number.POSITIVE_INFINITY);
    if (busy.length === 0) return;
    const commandId = chance.pick(busy);
    // Noted before it is answered: the answer may get lost.
    const label = labelOf(app.seen.get(commandId) ?? []);
    const command = label === undefined ? undefined : asked.get(label);
    if (command === undefined) return;
    command.killed = true;
    await app.kill(commandId).catch(() => {});
  }

  /** A backend submits for the tab, again until it is answered. */
  async function submit(app: Application, spec: { idempotencyKey: string }, chance: Seeded): Promise<void> {
    const { idempotencyKey, ...body } = spec;
    const { cluster } = world;
    const originSessionId = app.sessionId();
    for (let attempt = 0; attempt < 20 && !stopping; attempt += 1) {
      const status = await cluster
        .http('POST', '/v1/commands', {
          node: chance.between(0, cluster.nodes.length - 1),
          token: cluster.token({ sub: app.principal }),
          headers: { 'idempotency-key': idempotencyKey },
          body: { ...body, conversation: app.conversation, originSessionId },
        })
        .then((answer) => answer.status)
        .catch(() => 0);
      if (status === 202) return;
      if (status !== 0 && status < 500) break;
      await sleep(chance.between(50, 500));
    }
    refused += 1;
  }

  async function openApplication(lane: number, chance: Seeded): Promise<Application> {
    const facts = {
      name: `app${applications.length}`,
      principal: ['ann', 'bob'][lane % 2] as string,
      conversation: `talk${Math.floor(lane / 2) % options.conversations}`,
      token: '',
    };
    facts.token = world.cluster.token({ sub: facts.principal });
    const address = () => world.urlFor(lane, chance);
    const app = lane % 3 === 2 ? rawApplication(facts, address, chance) : sdkApplication(facts, address);
    applications.push(app);
    await app.opened;
    return app;
  }

  interface Facts {
    readonly name: string;
    readonly principal: string;
    readonly conversation: string;
    readonly token: string;
  }

  function sdkApplication(facts: Facts, address: () => string): Application & { opened: Promise<unknown> } {
    const storage = memoryStorage();
    const diary: string[] = [];
    const write = (line: string) => diary.push(`${Math.round(performance.now())} ${line}`);
    let page = 0;
    let status = '';
    let session: Promise<Session>;

    async function follow(handle: CommandHandle, mine: number): Promise<void> {
      try {
        for await (const entry of handle.events) {
          // A page that was left has no user any more.
          if (mine !== page) return;
          note(app, handle.commandId, {
            type: entry.type,
            fromSeq: entry.type === 'gap' ? entry.fromSeq : entry.seq,
            seq: entry.seq,
            ts: entry.ts,
            arrivedMs: performance.now(),
            view: (entry as { view?: boolean }).view === true,
            ...(entry.type === 'output' ? { at: entry.at, bytes: bytesOf({ params: entry } as never) } : {}),
            ...(entry.type === 'gap' ? { reason: entry.reason } : {}),
            ...(entry.type === 'ended' ? { reason: entry.outcome.reason } : {}),
          });
        }
      } catch {
        // The session is over here.
      }
    }

    function openPage(): Promise<Session> {
      page += 1;
      status = 'connecting';
      const mine = page;
      return connect({
        ...{ url: address, token: facts.token, conversation: facts.conversation, storage },
        connectTimeoutMs: 120_000,
        listen: {
          command(handle) {
            write(`page ${mine}: ${handle.commandId} ${handle.source}`);
            void follow(handle, mine);
          },
          status(state) {
            write(`page ${mine}: ${JSON.stringify(state)}`);
            if (mine === page) status = state.state;
          },
          replaced: (change) => {
            write(`page ${mine}: ${JSON.stringify(change)}`);
            if (mine === page && app.state === 'open') app.state = 'replaced';
          },
        },
      });
    }

    const app: Application & { opened: Promise<unknown> } = {
      ...facts,
      kind: 'sdk',
      seen: new Map(),
      state: 'open',
      comings: 0,
      opened: Promise.resolve(),
      async run(spec) {
        return (await (await session).run(spec as never)).commandId;
      },
      async kill(commandId) {
        await (await session).request('command.kill', { commandId });
      },
      async reload() {
        (await session).leave();
        app.comings += 1;
        session = openPage();
        await session;
      },
      async close() {
        app.state = 'closed';
        await (await session).close();
        page += 1;
      },
      sessionId: () => JSON.parse(storage.getItem(`homing:${facts.conversation}`) ?? '{}').sessionId ?? '',
      isSettled: () => app.state === 'closed' || status === 'live',
      diary: () => diary,
      async dispose() {
        session.then((open) => open.leave()).catch(() => {});
      },
    };
    session = openPage();
    app.opened = session;
    return app;
  }

  function rawApplication(
    facts: Facts,
    address: () => string,
    chance: Seeded,
  ): Application & { opened: Promise<unknown> } {
    const tab: Tab = createTab({
      token: facts.token,
      conversation: facts.conversation,
      name: facts.name,
      batch: chance.chance(0.5),
    });
    let over = false;
    let attached = false;
    let read = 0;
    let lastMs = performance.now();

    /** What came since the last look; the tab itself asks only for what comes after it. */
    function look(): void {
      const { recording } = tab;
      for (; read < recording.length; read += 1) {
        const arrival = recording[read];
        if (arrival === undefined) return;
        lastMs = arrival.timeMs;
        if (!isEntry(arrival)) continue;
        const { params } = arrival;
        note(app, params.commandId, {
          type: arrival.method.slice('command.'.length),
          fromSeq: arrival.method === 'command.gap' ? params.fromSeq : params.seq,
          seq: params.seq,
          ts: params.ts,
          arrivedMs: arrival.timeMs,
          view: params.view === true,
          ...(arrival.method === 'command.output' ? { at: params.at, bytes: bytesOf(arrival) } : {}),
          ...(arrival.method === 'command.gap' ? { reason: params.reason } : {}),
          ...(arrival.method === 'command.ended' ? { reason: params.outcome.reason } : {}),
        });
      }
    }

    async function comeBack(): Promise<void> {
      attached = false;
      for (let attempt = 0; !over; attempt += 1) {
        try {
          if (tab.sessionId === '') await tab.open(address());
          else await tab.resume(address());
          lastMs = performance.now();
          attached = true;
          return;
        } catch (error) {
          await tab.drop().catch(() => {});
          if (error instanceof RpcFailure && ['SESSION_GONE', 'SESSION_IN_USE', 'RESUME_DENIED'].includes(error.code)) {
            if (app.state === 'open') app.state = 'replaced';
            over = true;
            return;
          }
          await sleep(chance.between(20, 100 * 2 ** Math.min(attempt, 4)));
        }
      }
    }

    async function drive(): Promise<void> {
      let ackedMs = 0;
      while (!over) {
        look();
        const { readyState } = tab.socket.ws;
        if (readyState === 1 && performance.now() - lastMs > 2.5 * HEARTBEAT_MS) await tab.drop();
        if (tab.socket.ws.readyState > 1 && !over) await comeBack();
        if (performance.now() - ackedMs > 700 && tab.socket.ws.readyState === 1) {
          ackedMs = performance.now();
          tab.ack(tab.cursors());
        }
        await sleep(10);
      }
      look();
      if (tab.sessionId !== '') await tab.drop();
    }

    let driving: Promise<void> = Promise.resolve();
    const app: Application & { opened: Promise<unknown> } = {
      ...facts,
      kind: 'raw',
      seen: new Map(),
      state: 'open',
      comings: 0,
      opened: comeBack().then(() => {
        driving = drive();
      }),
      async run(spec) {
        for (let attempt = 0; ; attempt += 1) {
          try {
            return await tab.run(spec);
          } catch (error) {
            const answered = error instanceof RpcFailure && error.data?.retryable !== true;
            if (answered || over || attempt > 30) throw error;
            await sleep(chance.between(50, 500));
          }
        }
      },
      async kill(commandId) {
        await tab.rpc('command.kill', { commandId });
      },
      async reload() {
        // The driver sees the end of the socket and comes back, to any node.
        app.comings += 1;
        tab.socket.ws.terminate();
      },
      async close() {
        app.state = 'closed';
        for (let attempt = 0; attempt < 20 && !over; attempt += 1) {
          const done = await tab.close().then(
            () => true,
            () => false,
          );
          if (done) break;
          await sleep(200);
        }
        over = true;
        await driving;
      },
      sessionId: () => tab.sessionId,
      isSettled: () => over || (attached && tab.socket.ws.readyState === 1),
      diary: () =>
        tab.recording
          .filter((arrival) => arrival.method !== 'session.heartbeat' && arrival.method !== 'command.output')
          .map(
            (a) =>
              `${Math.round(a.timeMs)} connection ${a.connection}: ${a.type} ${a.method} ${JSON.stringify(a.params)}`,
          ),
      async dispose() {
        over = true;
        await driving;
        await tab[Symbol.asyncDispose]();
      },
    };
    return app;
  }

  const lives = Array.from({ length: options.tabs }, (_, lane) => live(lane, seeded.fork(`tab ${lane}`)));

  return {
    applications,
    asked,
    newest: (commandId) => newest.get(commandId) ?? 0,
    running: () => [...newest].filter(([, ts]) => ts !== Number.POSITIVE_INFINITY).map(([id]) => id),
    async stop() {
      stopping = true;
      await Promise.all(lives);
    },
    async answered() {
      await Promise.all(asking);
    },
    async closeAll() {
      await Promise.all(applications.filter((app) => app.state !== 'closed').map((app) => app.close()));
    },
    async [Symbol.asyncDispose]() {
      stopping = true;
      await Promise.all(applications.map((app) => app.dispose()));
      await Promise.race([Promise.all(lives), sleep(5_000)]);
    },
  };
}

/** The label of a command by what it printed. */
export function labelOf(seen: readonly Seen[]): string | undefined {
  const text = seen.find((entry) => entry.type === 'output')?.bytes?.toString('utf8') ?? '';
  return /^(app\d+\.\d+) /.exec(text)?.[1];
}

function memoryStorage(): SessionStorage {
  const items = new Map<string, string>();
  return {
    getItem: (key) => items.get(key) ?? null,
    setItem: (key, value) => void items.set(key, value),
    removeItem: (key) => void items.delete(key),
  };
}
