/** Row 9: what Redis keeps of an ended command with 2 kB of output, and for each byte of a long log. */
import {
  alternate,
  askRedis,
  createRunner,
  many,
  ONCE,
  openTab,
  range,
  sized,
  spread,
  startHoming,
  startRedis,
} from './harness.mjs';

const SMALL_COMMANDS = sized(100);
const AT_ONCE = 8;
/** Before it, so that buffers which grow once are not counted as theirs. */
const WARM = 8;
const SMALL_BYTES = 2_000;
/** Below what is kept of a command, so that all of it is. */
const LONG_BYTES = 6_000_000;
const LONG_LOGS = 3;
const PER_BYTE_LIMIT = 1.3;

async function ours(scope) {
  const redis = await startRedis(scope);
  const asking = askRedis(scope, redis.url);
  const homing = await startHoming(scope, { redis, nodes: 1, workers: 1 });
  const tab = await openTab(homing.nodes[0], await homing.token(), {});
  scope.defer(() => tab.close());
  const run = createRunner(tab);
  const grown = async (count, work) => {
    // What is made once, and what is only held while a command runs, is not in it.
    await run({ script: 'true' });
    const before = await asking.usedBytes();
    await work();
    await run({ script: 'true' });
    return ((await asking.usedBytes()) - before) / count;
  };
  const line = 'x'.repeat(79);
  const runSmall = (count) => many(count, AT_ONCE, () => run({ script: `yes ${line} | head -c ${SMALL_BYTES}` }));
  await runSmall(WARM);
  const ended = await grown(SMALL_COMMANDS, () => runSmall(SMALL_COMMANDS));
  const long = await grown(LONG_LOGS, () =>
    many(LONG_LOGS, 1, () => run({ script: `yes ${line} | head -c ${LONG_BYTES}` })),
  );
  // The other end: a line of 80 B now and then, each an entry of its own.
  const lines = 200;
  const slow = await grown(1, () =>
    run({ script: `i=0; while [ $i -lt ${lines} ]; do echo ${line}; sleep 0.03; i=$((i+1)); done` }),
  );
  return { ended, perByte: long / LONG_BYTES, perSlowByte: slow / (lines * 80) };
}

export default {
  id: '9',
  title: 'Redis memory for an ended command with 2 kB of output, and for each byte of a log',
  pairs: ONCE,
  async run(pairs) {
    const figures = await alternate(pairs, { homing: ours });
    const of = (field) => range(figures.homing.map((figure) => figure[field]));
    const verdicts = [
      {
        work: 'Redis memory for a command that ended with 2 kB of output',
        goal: 'stated',
        measured: `${spread(of('ended'))} B`,
      },
      {
        work: 'Redis memory for each byte of a long log (6 MB in lines of 80 B)',
        goal: `≤ ${PER_BYTE_LIMIT} B`,
        measured: `${spread(of('perByte'))} B; ${spread(of('perSlowByte'))} B where each line comes alone`,
        reached: of('perByte').median <= PER_BYTE_LIMIT,
      },
    ];
    return { figures, verdicts };
  },
};
