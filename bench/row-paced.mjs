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
const SECONDS = 5;
/** Of the beginning, while programs and connections warm up. */
const SKIPPED_SECONDS = 1.5;
const BYTES = 256;
const nowSeconds = () => Number(process.hrtime.bigint()) / 1e9;

/** Prints the clock that all processes of a machine share, padded to a length, at a pace. */
const PROGRAM = `use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC sleep); $| = 1;
my ($each, $seconds, $bytes) = @ARGV; my $next = clock_gettime(CLOCK_MONOTONIC) + rand(1 / $each);
for (1 .. $each * $seconds) { my $wait = $next - clock_gettime(CLOCK_MONOTONIC); sleep($wait) if $wait > 0; $next += 1 / $each;
print sprintf("%.6f ", clock_gettime(CLOCK_MONOTONIC)) . ("x" x ($bytes - 18)) . "\\n"; }`;

function collector() {
  const beganAt = nowSeconds();
  const tookMs = [];
  let lines = 0;
  return {
    take(text) {
      for (const [, at] of text.matchAll(/(\d+\.\d{6}) x/g)) {
        lines += 1;
        if (Number(at) - beganAt > SKIPPED_SECONDS) tookMs.push((nowSeconds() - Number(at)) * 1_000);
      }
      return lines;
    },
    figures: (cpu) => ({ p50: median(tookMs), p99: quantile(tookMs, 0.99), cpuMicros: (cpu * 1_000) / lines, lines }),
  };
}

async function ours(nodes, eachPerSecond = EACH_PER_SECOND) {
  const scope = createScope();
  try {
    const redis = await startRedis(scope);
    const env = { HOMING_CONCURRENCY: String(TABS) };
    const homing = await startHoming(scope, { redis, nodes, workers: 1, env });
    const token = await homing.token();
    const all = collector();
    const tabs = [];
    for (let n = 0; n < TABS; n += 1) {
      const tab = await openTab(homing.nodes[n % nodes], token, { conversation: `c${n}` });
      scope.defer(() => tab.close());
      tabs.push(tab);
    }
    const before = homing.nodes.map(({ pid }) => cpuMs(pid));
    await Promise.all(
      tabs.map(
        (tab) =>
          new Promise((resolve, reject) => {
            tab.on((method, params) => {
              if (method === 'command.output') all.take(params.data);
              if (method === 'command.ended') resolve();
            });
            const argv = ['perl', '-e', PROGRAM, ...[eachPerSecond, SECONDS, BYTES].map(String)];
            tab.rpc('command.run', { argv }).catch(reject);
          }),
      ),
    );
    return all.figures(homing.nodes.reduce((sum, { pid }, n) => sum + cpuMs(pid) - before[n], 0));
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
    const all = collector();
    const channels = [];
    const wanted = TABS * eachPerSecond * SECONDS;
    let finish;
    const done = new Promise((resolve) => {
      finish = resolve;
    });
    for (let n = 0; n < TABS; n += 1) {
      const channel = `{t${n}}:c`;
      const socket = new WebSocket(`${relays[n % nodes].ready.url}/?channel=${channel}`, { perMessageDeflate: false });
      scope.defer(() => socket.terminate());
      await once(socket, 'message');
      socket.on('message', (data) => {
        if (all.take(String(data)) === wanted) finish();
      });
      channels.push(channel);
    }
    const before = relays.map(({ pid }) => cpuMs(pid));
    publisher.child.send({ channels, eachPerSecond, seconds: SECONDS, bytes: BYTES });
    await done;
    return all.figures(relays.reduce((sum, { pid }, n) => sum + cpuMs(pid) - before[n], 0));
  } finally {
    await scope.close();
  }
}

/** Between and beside what the goals name, measured once, for the curves. */
const NODES_BETWEEN = [2, 4];
const OTHER_RATES = [10, 25, 100];
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
  pairs: 3,
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
  pairs: 3,
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
