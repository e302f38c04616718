/** What a session does in time: back-off, tokens, heartbeats, limits. On fake timers and a socket moved by hand. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { connect, type Session, type SessionState, type WebSocketLike } from '../../src/client/index.js';

// biome-ignore lint/suspicious/noExplicitAny: frames are looked at, not trusted
type Frame = any;

class FakeSocket implements WebSocketLike {
  static all: FakeSocket[] = [];
  readyState = 0;
  onopen: ((event: never) => void) | null = null;
  onmessage: ((event: never) => void) | null = null;
  onclose: ((event: never) => void) | null = null;
  onerror: ((event: never) => void) | null = null;
  readonly sent: Frame[] = [];
  readonly url: string;
  readonly authorization: string | undefined;
  readonly atMs = Date.now();

  constructor(url: string, _protocols: string[], options?: { headers: Record<string, string> }) {
    this.url = url;
    this.authorization = options?.headers.authorization;
    FakeSocket.all.push(this);
  }
  send(data: string): void {
    this.sent.push(JSON.parse(data));
  }
  close(): void {
    this.readyState = 3;
  }

  open(): void {
    this.readyState = 1;
    this.onopen?.({} as never);
  }
  say(frame: object): void {
    this.onmessage?.({ data: JSON.stringify({ jsonrpc: '2.0', ...frame }) } as never);
  }
  asked(method: string): Frame {
    return this.sent.findLast((frame) => frame.method === method);
  }
  answer(method: string, result: object): void {
    this.say({ id: this.asked(method).id, result });
  }
  refuse(method: string, code: string, more: object = {}): void {
    const error = { code: -32000, message: `refused: ${code}`, data: { code, retryable: false, ...more } };
    this.say({ id: this.asked(method).id, error });
  }
  lose(code = 1006): void {
    this.readyState = 3;
    this.onclose?.({ code, reason: '' } as never);
  }
  /** Opens and answers open or resume. */
  welcome(more: object = {}): void {
    this.open();
    const method = this.asked('session.resume') === undefined ? 'session.open' : 'session.resume';
    this.answer(method, {
      sessionId: 'ses_1',
      resumeToken: 'r',
      heartbeatMs: 10_000,
      commands: [],
      more: false,
      ...more,
    });
  }
}

const latest = (): FakeSocket => {
  const socket = FakeSocket.all.at(-1);
  if (socket === undefined) throw new Error('nobody connected');
  return socket;
};
const settle = () => vi.advanceTimersByTimeAsync(0);

let session: Session;
let states: SessionState[];

async function start(options: Partial<Parameters<typeof connect>[0]> = {}): Promise<void> {
  states = [];
  const opening = connect({
    url: 'http://node.test',
    token: 'one',
    conversation: 'c',
    webSocket: FakeSocket,
    listen: { status: (state) => states.push(state) },
    ...options,
  });
  await settle();
  latest().welcome();
  session = await opening;
}

beforeEach(() => {
  vi.useFakeTimers();
  // A draw of almost nothing would come back before a test has looked.
  vi.spyOn(Math, 'random').mockReturnValue(0.5);
  FakeSocket.all = [];
});
afterEach(() => {
  session?.leave();
  vi.runOnlyPendingTimers();
  expect(vi.getTimerCount()).toBe(0);
  vi.restoreAllMocks();
  vi.useRealTimers();
});

describe('back-off', () => {
  it('draws each delay anew between nothing and a doubling bound', async () => {
    const random = vi.spyOn(Math, 'random').mockReturnValue(0.5);
    await start();
    const delays: number[] = [];
    for (let attempt = 0; attempt < 8; attempt += 1) {
      latest().lose();
      const lostAtMs = Date.now();
      const before = FakeSocket.all.length;
      while (FakeSocket.all.length === before) await vi.advanceTimersByTimeAsync(10);
      delays.push(latest().atMs - lostAtMs);
    }
    expect(delays.map((delay) => Math.round(delay / 10) * 10)).toEqual([
      250, 500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000,
    ]);
    // Nobody comes back in step: another draw is another delay.
    random.mockReturnValue(0.01);
    latest().lose();
    const before = FakeSocket.all.length;
    await vi.advanceTimersByTimeAsync(210);
    expect(FakeSocket.all.length).toBe(before + 1);
  });

  it('starts anew after a connection that held, and `retry` does not wait', async () => {
    vi.spyOn(Math, 'random').mockReturnValue(0.999);
    await start();
    for (let i = 0; i < 5; i += 1) {
      latest().lose();
      session.retry();
      await settle();
    }
    latest().welcome();
    await vi.advanceTimersByTimeAsync(6_000);
    latest().lose();
    expect(session.state).toMatchObject({ state: 'away', attempt: 1, delayMs: 499 });
    expect(states.at(-1)).toBe(session.state);
  });

  it('[SE4] a session in use is replaced by a new one at once, and that is said', async () => {
    await start();
    const replaced: unknown[] = [];
    session.on('replaced', (what) => replaced.push(what));
    latest().lose();
    session.retry();
    await settle();
    latest().open();
    latest().refuse('session.resume', 'SESSION_IN_USE');
    await settle();
    latest().welcome({ sessionId: 'ses_2' });
    expect(replaced).toEqual([{ formerSessionId: 'ses_1', sessionId: 'ses_2', why: 'SESSION_IN_USE' }]);
  });
});

describe('tokens', () => {
  it('a token that is about to end is refreshed by the callback', async () => {
    const token = vi.fn().mockResolvedValueOnce('one').mockResolvedValueOnce('two');
    await start({ token });
    expect(latest().authorization).toBe('Bearer one');
    latest().say({ method: 'session.expiring', params: { expiresInMs: 60_000 } });
    await settle();
    expect(latest().asked('session.refresh').params).toEqual({ token: 'two' });
  });

  it('after 4005 it comes back with a new token', async () => {
    const token = vi.fn().mockResolvedValueOnce('one').mockResolvedValueOnce('two');
    await start({ token });
    latest().lose(4005);
    expect(session.state.state).toBe('away');
    session.retry();
    await settle();
    expect(latest().authorization).toBe('Bearer two');
    latest().open();
    expect(latest().asked('session.resume').params).toMatchObject({ token: 'two', sessionId: 'ses_1' });
  });

  it('a callback that fails is asked again; one that only ever gives an expired token ends it', async () => {
    let calls = 0;
    await start({
      token: () => {
        calls += 1;
        if (calls === 2) throw new Error('the token service is away');
        return `token ${calls}`;
      },
    });
    latest().lose();
    session.retry();
    await settle();
    expect(session.state).toMatchObject({ state: 'away', why: 'the token service is away' });
    for (let i = 0; i < 3; i += 1) {
      if (session.state.state !== 'away') break;
      session.retry();
      await settle();
      latest().open();
      latest().refuse('session.resume', 'TOKEN_EXPIRED');
    }
    expect(session.state).toMatchObject({ state: 'closed', code: 'TOKEN_EXPIRED' });
  });
});

describe('silence', () => {
  it('two missed heartbeats are a loss; a beat is not', async () => {
    await start();
    await vi.advanceTimersByTimeAsync(24_000);
    latest().say({ method: 'session.heartbeat', params: { heads: {}, bus: 'ok' } });
    await vi.advanceTimersByTimeAsync(24_900);
    expect(session.state.state).toBe('live');
    await vi.advanceTimersByTimeAsync(200);
    expect(session.state.state).not.toBe('live');
  });
});

describe('requests while away', () => {
  it('wait for the next connection, and are asked once it is there', async () => {
    await start();
    latest().lose();
    const touched = session.touch();
    session.retry();
    await settle();
    latest().welcome();
    latest().answer('session.touch', {});
    await touched;
  });

  it('fail with what they were when their limit is over', async () => {
    await start({ requestTimeoutMs: 5_000 });
    latest().lose();
    const failed = expect(session.run({ argv: ['x'] })).rejects.toMatchObject({
      code: 'REDIS_UNAVAILABLE',
      message: 'command.run was not answered within 5000 ms; it may have been carried out',
    });
    const sooner = expect(session.touch({ timeoutMs: 1_000 })).rejects.toMatchObject({ code: 'REDIS_UNAVAILABLE' });
    await vi.advanceTimersByTimeAsync(1_001);
    await sooner;
    await vi.advanceTimersByTimeAsync(4_000);
    await failed;
  });

  it('end with the reason of their signal, also one that was aborted before', async () => {
    await start();
    const stop = new AbortController();
    const failed = expect(session.request('command.list', {}, { signal: stop.signal })).rejects.toThrow('not any more');
    stop.abort(new Error('not any more'));
    await failed;
    await expect(session.touch({ signal: stop.signal })).rejects.toThrow('not any more');
    expect(latest().asked('session.touch')).toBeUndefined();
  });

  it('none is left behind when the session ends', async () => {
    await start();
    latest().lose();
    const failed = expect(session.touch()).rejects.toMatchObject({ code: 'SESSION_GONE' });
    session.leave();
    await failed;
  });
});

describe('connecting', () => {
  it('is given up when its signal says so', async () => {
    const stop = new AbortController();
    const options = { url: 'http://n', token: 't', conversation: 'c', webSocket: FakeSocket, signal: stop.signal };
    const failed = expect(connect(options)).rejects.toThrow('changed my mind');
    await settle();
    stop.abort(new Error('changed my mind'));
    await failed;
    expect(latest().readyState).toBe(3);
    await expect(connect(options)).rejects.toThrow('changed my mind');
    expect(FakeSocket.all).toHaveLength(1);
  });
});

describe('catching up', () => {
  it('[DE4] is a state of its own until what was written before has arrived', async () => {
    await start();
    latest().lose();
    session.retry();
    await settle();
    const snapshot = { commandId: 'cmd_1', state: 'running', headSeq: 3, ackedSeq: 0, fromSeq: 1, labels: {} };
    latest().welcome({ commands: [snapshot] });
    expect(session.state).toMatchObject({ state: 'catching-up', commands: 1, entries: 3 });
    const output = (seq: number) =>
      latest().say({
        method: 'command.output',
        params: { commandId: 'cmd_1', seq, ts: 1, at: seq, stream: 'out', data: 'x' },
      });
    output(1);
    output(2);
    expect(session.state.state).toBe('catching-up');
    output(3);
    expect(session.state.state).toBe('live');
    expect(states.slice(-2).map(({ state }) => state)).toEqual(['catching-up', 'live']);
  });
});
