/** Row 11: `homing up` on an empty folder until it is ready, and `homing run -- true` against it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { alternate, freePort, PAIRS, ROOT, range, spread } from './harness.mjs';

const MAIN = join(ROOT, 'dist/cli/main.js');
const UP_LIMIT_MS = 1_500;
const RUN_LIMIT_MS = 150;

async function timed(args, env) {
  const startedMs = performance.now();
  const [code] = await once(spawn(process.execPath, args, { env, stdio: 'ignore' }), 'exit');
  if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code}`);
  return performance.now() - startedMs;
}

async function ours(scope) {
  const dataDir = mkdtempSync(join(tmpdir(), 'homing-bench-'));
  scope.defer(() => rmSync(dataDir, { recursive: true, force: true }));
  const env = { PATH: process.env.PATH, HOME: process.env.HOME, HOMING_DATA_DIR: dataDir, HOMING_LOG_LEVEL: 'warn' };
  // Fixed ones, as people have them: with any port a worker waits for the address of the node.
  const [port, opsPort] = [await freePort(), await freePort()];
  const startedMs = performance.now();
  const up = spawn(process.execPath, [MAIN, 'up', '--port', String(port), '--ops-port', String(opsPort)], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  scope.defer(async () => {
    up.kill('SIGTERM');
    if (up.exitCode === null) await once(up, 'exit');
  });
  let said = '';
  for await (const text of up.stdout.setEncoding('utf8')) {
    said += text;
    if (/^ready$/m.test(said)) break;
  }
  const upMs = performance.now() - startedMs;
  // The first one finds cold files.
  await timed([MAIN, 'run', '--', 'true'], env);
  const nodeMs = await timed(['-e', '0'], env);
  const runMs = await timed([MAIN, 'run', '--', 'true'], env);
  return { upMs, runMs, nodeMs };
}

export default {
  id: '11',
  title: 'homing up until ready; homing run -- true, and node -e 0 beside it: ms',
  pairs: PAIRS,
  async run(pairs) {
    const figures = await alternate(pairs, { homing: ours });
    const up = range(figures.homing.map(({ upMs }) => upMs));
    const above = range(figures.homing.map(({ runMs, nodeMs }) => runMs - nodeMs));
    const verdicts = [
      {
        work: '`homing up` on an empty folder until `ready`',
        goal: `≤ ${UP_LIMIT_MS / 1_000} s`,
        measured: `${spread(up)} ms`,
        reached: up.median <= UP_LIMIT_MS,
      },
      {
        work: '`homing run -- true`',
        goal: `≤ ${RUN_LIMIT_MS} ms above \`node -e 0\``,
        measured: `${spread(above)} ms above`,
        reached: above.median <= RUN_LIMIT_MS,
      },
    ];
    return { figures, unit: 'ms', ratio: { up, above }, verdicts };
  },
};
