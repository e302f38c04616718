/**
 * Row 1a: entries of 256 B handed to the bus by one publisher, unpaced, one node, 40 tabs: delivered per second, and whether
 * any was lost.
 */
import { bullmqRelay, homing, relay, socketios } from './contenders.mjs';
import {
  cpuMs,
  inTurns,
  many,
  mapped,
  median,
  PAIRS,
  pause,
  ratios,
  short,
  sized,
  spread,
  startRedis,
} from './harness.mjs';

const TABS = 40;
/** Of one window. */
const TOTAL = sized(30_000);
const BYTES = 256;
/** After so long without one, what is missing is lost. */
const SILENT_MS = 3_000;
const NAMES = {
  relay: 'bare relay',
  sioRedis: 'Socket.IO redis-adapter',
  sioSharded: 'sharded adapter',
  sioStreams: 'streams adapter',
  bullmqRelay: 'BullMQ Relay',
};

const prepare = (contender) => async (scope) => {
  const redis = await startRedis(scope);
  const started = await contender.start(scope, redis);
  let got = 0;
  let lastMs = 0;
  await many(TABS, 10, (n) =>
    started.open(n, () => {
      got += 1;
      lastMs = performance.now();
    }),
  );
  const publish = await started.publisher();
  return async () => {
    got = 0;
    // The tabs of all sides are in this process.
    const pids = [started.pid, redis.pid, publish.pid, process.pid];
    const before = pids.map(cpuMs);
    const beganMs = performance.now();
    lastMs = beganMs;
    const published = publish(TOTAL, BYTES);
    while (got < TOTAL && performance.now() - lastMs < SILENT_MS) await pause(20);
    const [node, ofRedis, publisher, clients] = pids.map((pid, n) => ((cpuMs(pid) - before[n]) * 1_000) / got);
    const figures = {
      perSecond: got / ((lastMs - beganMs) / 1_000),
      lost: TOTAL - got,
      nodeMicros: node,
      redisMicros: ofRedis,
      publisherMicros: publisher,
      clientMicros: clients,
      allMicros: node + ofRedis + publisher + clients,
    };
    await published;
    started.acknowledge?.();
    return figures;
  };
};

export default {
  id: '1a',
  title: 'entries of 256 B through one node to 40 tabs, per second',
  pairs: PAIRS,
  async run(pairs) {
    const figures = await inTurns(pairs, mapped({ homing: homing(), relay, ...socketios, bullmqRelay }, prepare));
    const of = (name, field = 'perSecond') => figures[name].map((figure) => figure[field]);
    const ratio = mapped(NAMES, (_, name) => ratios(of('homing'), of(name)));
    const best = ratios(
      of('homing'),
      of('homing').map((_, n) => Math.max(...Object.keys(socketios).map((name) => of(name)[n]))),
    );
    const lost = (name) => {
      const most = Math.max(...of(name, 'lost'));
      return most === 0 ? '' : `, lost up to ${short((most / TOTAL) * 100)} %`;
    };
    const said = (name) =>
      `${short(median(of(name)))} a second, ${short(median(of(name, 'nodeMicros')))} µs of node CPU each, of ${short(median(of(name, 'allMicros')))} of all processes${lost(name)}`;
    const verdicts = [
      {
        work: 'entries of 256 B through one node to 40 tabs, unpaced',
        goal: '≥ 0.9 × bare relay, none lost',
        measured: `${spread(ratio.relay)} ×; ${said('homing')}; bare relay ${said('relay')}`,
        reached: ratio.relay.median >= 0.9 && Math.max(...of('homing', 'lost')) === 0,
      },
      {
        work: 'the same against the best Socket.IO of each round',
        goal: '≥ 2 ×',
        measured: `${spread(best)} ×; ${Object.keys(socketios)
          .map((name) => `${NAMES[name]} ${said(name)}`)
          .join('; ')}`,
        reached: best.median >= 2,
      },
      {
        work: 'the same against BullMQ Relay',
        goal: '≥ 1.5 ×',
        measured: `${spread(ratio.bullmqRelay)} ×; ${said('bullmqRelay')}`,
        reached: ratio.bullmqRelay.median >= 1.5,
      },
    ];
    return { figures, ratio: { ...ratio, best }, verdicts };
  },
};
