/**
 * Rows 2 and 3: 40 programs print 50 lines a second each, for 40 tabs. CPU of the nodes for each line, with one node and with
 * eight; and how long a line takes from the program's write to the client.
 */
import { once } from 'node:events';
import { WebSocket } from 'ws';
import {
  cpuMs,
  inTurns,
  many,
  median,
  openTab,
  PAIRS,
  pause,
  prepared,
  quantile,
  range,
  ratios,
  spread,
  startHoming,
  startPart,
  startProgram,
  startRedis,
  takeTurns,
} from './harness.mjs';

const TABS = 40;
const EACH_PER_SECOND = 50;
/** Counted is from a moment after all of them print until this much later, so that no start is in it. */
const SETTLE_MS = 200;
const COUNTED_MS = 1_800;
const BYTES = 256;
const nowSeconds = () => Number(process.hrtime.bigint()) / 1e9;

/** Prints the clock that all processes of a machine share, padded to a length, at the pace it is told on stdin; 0 for none. */
const PROGRAM = `use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC); $| = 1; vec(my $stdin, 0, 1) = 1; my ($each, $next) = (0, 0);
for (;;) { my $wait = $each ? $next - clock_gettime(CLOCK_MONOTONIC) : undef;
if (select(my $told = $stdin, undef, undef, defined $wait && $wait < 0 ? 0 : $wait)) {
sysread(STDIN, my $order, 64) or last; $each = 0 + $order; $next = clock_gettime(CLOCK_MONOTONIC) + rand(1 / $each) if $each; next; }
$next += 1 / $each; print sprintf("%.6f ", clock_gettime(CLOCK_MONOTONIC)) . ("x" x ${BYTES - 18}) . "\\n"; }`;

/**
 * Counts lines, and how long they took, while all `TABS` print.
 * @param pids whose CPU is counted
 * @param order makes all print at a pace, or stop
 * @param failed rejects when one of them ends
 */
function createCounter(pids, order, failed) {
  const printing = new Set();
  let tookMs;
  let counting = false;
  let tellAllPrint;
  const used = () => pids.reduce((sum, pid) => sum + cpuMs(pid), 0);
  return {
    take(text, tab) {
      if (printing.add(tab).size === TABS) tellAllPrint();
      if (!counting) return;
      for (const [, at] of text.matchAll(/(\d+\.\d{6}) x/g)) tookMs.push((nowSeconds() - Number(at)) * 1_000);
    },
    async measure(eachPerSecond = EACH_PER_SECOND) {
      tookMs = [];
      printing.clear();
      const allPrint = new Promise((resolve) => {
        tellAllPrint = resolve;
      });
      await order(eachPerSecond);
      await Promise.race([allPrint, failed]);
      await pause(SETTLE_MS);
      const before = used();
      counting = true;
      await Promise.race([pause(COUNTED_MS), failed]);
      counting = false;
      const cpu = used() - before;
      await order(0);
      const lines = tookMs.length;
      return { p50: median(tookMs), p99: quantile(tookMs, 0.99), cpuMicros: (cpu * 1_000) / lines, lines };
    },
  };
}

const ours = (nodes) => async (scope) => {
  const redis = await startRedis(scope);
  const env = { HOMING_CONCURRENCY: String(TABS) };
  const homing = await startHoming(scope, { redis, nodes, workers: 1, env });
  const token = await homing.token();
  const tabs = await many(TABS, 10, async (n) => {
    const tab = await openTab(homing.nodes[n % nodes], token, { conversation: `c${n}` });
    scope.defer(() => tab.close());
    tab.on((method, params) => method === 'command.output' && counter.take(params.data, n));
    return { ...tab, ...(await startProgram(tab, ['perl', '-e', PROGRAM])) };
  });
  const order = async (eachPerSecond) => {
    await Promise.all(tabs.map(({ tell }) => tell(eachPerSecond)));
    if (eachPerSecond === 0) for (const { acknowledge } of tabs) acknowledge();
  };
  const failed = Promise.race(tabs.map((tab) => tab.failed));
  failed.catch(() => {});
  const counter = createCounter(
    homing.nodes.map(({ pid }) => pid),
    order,
    failed,
  );
  return counter.measure;
};

const bareRelay = (nodes) => async (scope) => {
  const redis = await startRedis(scope);
  const relays = [];
  for (let n = 0; n < nodes; n += 1) relays.push(await startPart(scope, 'relay.mjs', { REDIS_URL: redis.url }));
  const publisher = await startPart(scope, 'paced-publisher.mjs', { REDIS_URL: redis.url });
  const channels = Array.from({ length: TABS }, (_, n) => `{t${n}}:c`);
  const order = (eachPerSecond) => publisher.child.send({ channels, eachPerSecond, bytes: BYTES });
  const counter = createCounter(
    relays.map(({ pid }) => pid),
    order,
    new Promise(() => {}),
  );
  for (const [n, channel] of channels.entries()) {
    const socket = new WebSocket(`${relays[n % nodes].ready.url}/?channel=${channel}`, { perMessageDeflate: false });
    scope.defer(() => socket.terminate());
    await once(socket, 'message');
    socket.on('message', (data) => counter.take(String(data), channel));
  }
  return counter.measure;
};

/** Beside what the goals name, measured once, for the curves. */
const NODES_BETWEEN = 4;
const OTHER_RATES = [15, 100];

const contenders = (nodes) => ({ homing: ours(nodes), relay: bareRelay(nodes) });
const FREEZE = { freeze: true };

/** What both rows need of one node; the first of them measures it. */
let withOneNode;
function oneNode(pairs) {
  withOneNode ??= prepared(
    contenders(1),
    async (measures) => {
      const figures = await takeTurns(pairs, measures);
      const rates = [];
      for (const each of OTHER_RATES)
        rates.push({ at: each * TABS, homing: await measures.homing(each), relay: await measures.relay(each) });
      return { figures, rates };
    },
    FREEZE,
  );
  return withOneNode;
}

/** The run in the middle of several, by one of its figures. */
const middle = (list, name) => [...list].sort((a, b) => a[name] - b[name])[Math.floor(list.length / 2)];

const field = (list, name) => list.map((figures) => figures[name]);

export const cost = {
  id: '2',
  title: 'node CPU for each line at 2,000 a second, us; with one node and with eight',
  pairs: PAIRS,
  async run(pairs) {
    const one = await oneNode(pairs);
    const eight = await inTurns(pairs, contenders(8), FREEZE);
    const figures = { ...one.figures, homing8: eight.homing, relay8: eight.relay };
    const at = (nodes, { homing, relay }) => ({
      at: nodes,
      homing: middle(homing, 'cpuMicros'),
      relay: middle(relay, 'cpuMicros'),
    });
    const between = await inTurns(1, contenders(NODES_BETWEEN), FREEZE);
    const nodes = [at(1, one.figures), at(NODES_BETWEEN, between), at(8, eight)];
    const each = (name) => field(figures[name], 'cpuMicros');
    const ratio = ratios(each('homing'), each('relay'));
    const growth = ratios(
      each('homing8').map((value, n) => value / each('homing')[n]),
      each('relay8').map((value, n) => value / each('relay')[n]),
    );
    const verdicts = [
      {
        work: 'node CPU for each line at 2,000 a second',
        goal: '≤ 1.2 × bare relay',
        measured: `${spread(ratio)} ×; ${spread(range(each('homing')))} µs`,
        reached: ratio.median <= 1.2,
      },
      {
        work: 'how that grows from one node to eight',
        goal: '≤ 1.1 × bare relay’s growth',
        measured: `${spread(growth)} ×; ${spread(range(each('homing8')))} µs`,
        reached: growth.median <= 1.1,
      },
    ];
    return { figures, curve: nodes, ratio: { ratio, growth }, verdicts };
  },
};

export const latency = {
  id: '3',
  title: 'from the program’s write to the client at 2,000 lines a second, ms',
  pairs: PAIRS,
  async run(pairs) {
    const { figures, rates } = await oneNode(pairs);
    const known = {
      at: TABS * EACH_PER_SECOND,
      homing: middle(figures.homing, 'p50'),
      relay: middle(figures.relay, 'p50'),
    };
    const above = range(field(figures.homing, 'p50').map((value, n) => value - figures.relay[n].p50));
    const p99 = ratios(field(figures.homing, 'p99'), field(figures.relay, 'p99'));
    const verdicts = [
      {
        work: 'from the program’s write to the client at 2,000 lines a second, p50',
        goal: '≤ 1.5 ms above bare relay',
        measured: `${spread(above)} ms above`,
        reached: above.median <= 1.5,
      },
      {
        work: 'the same, p99',
        goal: '≤ 2 × bare relay',
        measured: `${spread(p99)} ×; ${spread(range(field(figures.homing, 'p99')))} ms`,
        reached: p99.median <= 2,
      },
    ];
    const curve = [known, ...rates].sort((a, b) => a.at - b.at);
    return { figures, curve, ratio: { above, p99 }, verdicts };
  },
};
