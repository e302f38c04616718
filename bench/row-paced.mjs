/**
 * Rows 2 and 3: 40 programs print 50 lines a second each, for 40 tabs. CPU of the nodes for each line, with one node and with
 * eight; and how long a line takes from the program's write to the client.
 */
import { once } from 'node:events';
import { WebSocket } from 'ws';
import {
  alternate,
  cpuMs,
  createScope,
  median,
  openTab,
  pause,
  quantile,
  range,
  ratios,
  spread,
  startHoming,
  startPart,
  startRedis,
} from './harness.mjs';

const TABS = 40;
const EACH_PER_SECOND = 50;
/** Programs would print for this long; they are ended when enough was counted. */
const SECONDS = 60;
/** Counted is from a moment after all of them print until this much later, so that no start is in it. */
const SETTLE_MS = 500;
const COUNTED_MS = 3_500;
const BYTES = 256;
const nowSeconds = () => Number(process.hrtime.bigint()) / 1e9;

/** Prints the clock that all processes of a machine share, padded to a length, at a pace. */
const PROGRAM = `use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC sleep); $| = 1;
my ($each, $seconds, $bytes) = @ARGV; my $next = clock_gettime(CLOCK_MONOTONIC) + rand(1 / $each);
for (1 .. $each * $seconds) { my $wait = $next - clock_gettime(CLOCK_MONOTONIC); sleep($wait) if $wait > 0; $next += 1 / $each;
print sprintf("%.6f ", clock_gettime(CLOCK_MONOTONIC)) . ("x" x ($bytes - 18)) . "\\n"; }`;

/** Counts lines, and how long they took, while all `TABS` print. @param pids whose CPU is counted */
function collector(pids) {
  const printing = new Set();
  const tookMs = [];
  let lines = 0;
  let state = 'starting';
  let cpu;
  let finish;
  const counted = new Promise((resolve) => {
    finish = resolve;
  });
  const used = () => pids.reduce((sum, pid) => sum + cpuMs(pid), 0);
  async function count() {
    await pause(SETTLE_MS);
    const before = used();
    state = 'counting';
    await pause(COUNTED_MS);
    cpu = used() - before;
    state = 'over';
    finish();
  }
  return {
    counted,
    take(text, tab) {
      if (state === 'starting' && printing.add(tab).size === TABS) {
        state = 'settling';
        count();
      }
      if (state !== 'counting') return;
      for (const [, at] of text.matchAll(/(\d+\.\d{6}) x/g)) {
        lines += 1;
        tookMs.push((nowSeconds() - Number(at)) * 1_000);
      }
    },
    figures: () => ({ p50: median(tookMs), p99: quantile(tookMs, 0.99), cpuMicros: (cpu * 1_000) / lines, lines }),
  };
}

async function ours(nodes, eachPerSecond = EACH_PER_SECOND) {
  const scope = createScope();
  try {
    const redis = await startRedis(scope);
    const env = { HOMING_CONCURRENCY: String(TABS) };
    const homing = await startHoming(scope, { redis, nodes, workers: 1, env });
    const token = await homing.token();
    const all = collector(homing.nodes.map(({ pid }) => pid));
    const tabs = [];
    for (let n = 0; n < TABS; n += 1) {
      const tab = await openTab(homing.nodes[n % nodes], token, { conversation: `c${n}` });
      scope.defer(() => tab.close());
      tabs.push(tab);
    }
    const argv = ['perl', '-e', PROGRAM, ...[eachPerSecond, SECONDS, BYTES].map(String)];
    let fail;
    const failed = new Promise((_, reject) => {
      fail = reject;
    });
    for (const tab of tabs) {
      tab.on((method, params) => {
        if (method === 'command.output') all.take(params.data, tab);
        if (method === 'command.ended') fail(new Error(`a program ended early: ${JSON.stringify(params.outcome)}`));
      });
      await Promise.race([tab.rpc('command.run', { argv }), failed]);
    }
    await Promise.race([all.counted, failed]);
    return all.figures();
  } finally {
    await scope.close();
  }
}

async function bareRelay(nodes, eachPerSecond = EACH_PER_SECOND) {
  const scope = createScope();
  try {
    const redis = await startRedis(scope);
    const relays = [];
    for (let n = 0; n < nodes; n += 1) relays.push(await startPart(scope, 'relay.mjs', { REDIS_URL: redis.url }));
    const publisher = await startPart(scope, 'paced-publisher.mjs', { REDIS_URL: redis.url });
    const all = collector(relays.map(({ pid }) => pid));
    const channels = [];
    for (let n = 0; n < TABS; n += 1) {
      const channel = `{t${n}}:c`;
      const socket = new WebSocket(`${relays[n % nodes].ready.url}/?channel=${channel}`, { perMessageDeflate: false });
      scope.defer(() => socket.terminate());
      await once(socket, 'message');
      socket.on('message', (data) => all.take(String(data), channel));
      channels.push(channel);
    }
    publisher.child.send({ channels, eachPerSecond, seconds: SECONDS, bytes: BYTES });
    await all.counted;
    return all.figures();
  } finally {
    await scope.close();
  }
}

/** Between and beside what the goals name, measured once, for the curves. */
const NODES_BETWEEN = [2, 4];
const OTHER_RATES = [15, 100];
/** Of one run of the bench: what both rows need is measured once. */
let withOneNode;

async function curve(points, known, run) {
  const measured = [...known];
  for (const at of points) measured.push({ at, homing: await run.homing(at), relay: await run.relay(at) });
  return measured.sort((a, b) => a.at - b.at);
}
/** The run in the middle of several, by one of its figures. */
const middle = (list, name) => [...list].sort((a, b) => a[name] - b[name])[Math.floor(list.length / 2)];

const field = (list, name) => list.map((figures) => figures[name]);

export const cost = {
  id: '2',
  title: 'node CPU for each line at 2,000 a second, us; with one node and with eight',
  pairs: 2,
  async run(pairs) {
    const figures = await alternate(pairs, {
      homing: () => ours(1),
      relay: () => bareRelay(1),
      homing8: () => ours(8),
      relay8: () => bareRelay(8),
    });
    withOneNode = { homing: figures.homing, relay: figures.relay };
    const at = (nodes, ...names) => ({
      at: nodes,
      homing: middle(figures[names[0]], 'cpuMicros'),
      relay: middle(figures[names[1]], 'cpuMicros'),
    });
    const nodes = await curve(NODES_BETWEEN, [at(1, 'homing', 'relay'), at(8, 'homing8', 'relay8')], {
      homing: ours,
      relay: bareRelay,
    });
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
  pairs: 2,
  async run(pairs) {
    const figures = withOneNode ?? (await alternate(pairs, { homing: () => ours(1), relay: () => bareRelay(1) }));
    const known = {
      at: TABS * EACH_PER_SECOND,
      homing: middle(figures.homing, 'p50'),
      relay: middle(figures.relay, 'p50'),
    };
    const rates = await curve(
      OTHER_RATES.map((each) => each * TABS),
      [known],
      { homing: (rate) => ours(1, rate / TABS), relay: (rate) => bareRelay(1, rate / TABS) },
    );
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
    return { figures, curve: rates, ratio: { above, p99 }, verdicts };
  },
};
