/** Secrets of a command: in its environment, and in nothing else (CO10). */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createSecretBox } from '../../src/ops/secret-box.js';
import { startRedis, type TestRedis } from '../support/redis.js';
import { chance, createStores, newCommandId, openTab, placeOf, type Stores, submit } from '../support/stores.js';
import { nodeProgram, readWholeLog, runOnce, type Spec, script, startWorkerOn } from '../support/test-worker.js';
import { until, within } from '../support/wait.js';

let redis: TestRedis;
let stores: Stores;
beforeAll(async () => {
  redis = await startRedis();
  stores = await createStores(redis.url);
});
afterAll(async () => {
  await stores[Symbol.asyncDispose]();
  await redis[Symbol.asyncDispose]();
});

const key = randomBytes(32).toString('base64');
const box = createSecretBox([key], chance)!;
const SECRET = 'correct-horse "battery"/staple';

/** Submits as a node does, runs to the end. */
async function runWith(
  spec: Spec,
  secrets: Record<string, string>,
  opened: Pick<typeof box, 'open'> | undefined = box,
) {
  const tab = await openTab(stores);
  const commandId = newCommandId(placeOf());
  await submit(stores, { tab }, spec, placeOf(), commandId, box.seal(commandId, secrets));
  await using test = await startWorkerOn(stores, redis.url, {}, {}, { secrets: opened });
  await within('the end', test.run(commandId), 20_000);
  return { commandId, ...(await readWholeLog(stores, commandId)) };
}

/** Everything Redis holds under this test's prefix, as text. */
async function everythingStored(): Promise<string> {
  const found: string[] = [];
  for (const name of await stores.redis.keys(`${stores.keys.prefix}*`)) {
    const type = await stores.redis.type(name);
    if (type === 'hash') found.push(JSON.stringify(await stores.redis.hgetall(name)));
    if (type === 'stream') found.push(JSON.stringify(await stores.redis.xrange(name, '-', '+')));
    if (type === 'list') found.push(JSON.stringify(await stores.redis.lrange(name, 0, -1)));
    if (type === 'string') found.push((await stores.redis.get(name)) ?? '');
  }
  return found.join('\n');
}

describe('[CO10] a secret', () => {
  it('is a variable of the command, masked in what it prints, in every form, and nowhere in Redis', async () => {
    const { output, outcome, commandId } = await runWith(
      {
        argv: [
          process.execPath,
          '-e',
          `const s = process.env.PASSWORD;
           console.log(s.length, s); console.error(JSON.stringify({ s }));
           console.log(Buffer.from('user:' + s).toString('base64'), encodeURIComponent(s));`,
        ],
      },
      { PASSWORD: SECRET },
    );
    const text = output.toString();
    expect(text).toContain(`${SECRET.length} ***\n`);
    expect(text).toContain('{"s":"***"}');
    expect(outcome.tail).toContain('***');
    expect(outcome.outputBytes).toBe(output.length);
    const stored = await everythingStored();
    for (const form of [
      SECRET,
      JSON.stringify(SECRET).slice(1, -1),
      Buffer.from(SECRET).toString('base64').slice(0, 30),
    ])
      expect(stored).not.toContain(form);
    expect(await stores.redis.hget(stores.keys.command(commandId), 'sealed')).toBeNull();
  });

  it('is masked at every split of its output, with pauses too, on pipes and in a terminal', async () => {
    const secret = 'splitme-é-secret';
    const length = Buffer.byteLength(secret);
    for (const pty of [undefined, { cols: 80, rows: 24 }]) {
      const { output } = await runWith(
        { ...nodeProgram('print-split.mjs', '1'), ...(pty === undefined ? {} : { pty }) },
        { SECRET: secret },
      );
      const lines = output.toString().replaceAll('\r', '').trimEnd().split('\n');
      expect(lines).toHaveLength(length + 1);
      for (const line of lines) expect(line).toBe('[***]');
    }
  }, 30_000);

  it('may show two bytes of it after a pause, never more', async () => {
    const { output } = await runWith(nodeProgram('print-split.mjs', '400', '10'), { SECRET: 'splitme-é-secret' });
    expect(output.toString()).toMatch(/^\[(sp)?\*\*\*\]\n$/);
  });

  it('of a worker without the key, or with another, makes the command end as refused', async () => {
    const none = await runWith(
      { argv: ['true'] },
      { A: SECRET },
      { open: () => box.open('cmd_x' as never, 'bad.bad') },
    );
    expect(none.outcome).toMatchObject({ reason: 'refused', error: expect.stringMatching(/^secrets: /) });
    const other = createSecretBox([randomBytes(32).toString('base64')], chance)!;
    const refused = await runWith({ argv: ['true'] }, { A: SECRET }, other);
    expect(refused.outcome).toMatchObject({ reason: 'refused', error: expect.stringContaining('not known here') });
    expect(refused.said).toHaveLength(1);
  });

  it('that a command is given as token is its own: in its environment, dead in the log', async () => {
    const { output, commandId } = await runOnce(
      stores,
      redis.url,
      script('echo "$HOMING_TOKEN" | wc -c; echo "t=$HOMING_TOKEN"; echo "$HOMING_TOKEN" | cut -d. -f2'),
    );
    expect(
      output
        .toString()
        .trim()
        .split('\n')
        .map((line) => line.trim()),
    ).toEqual([String(commandId.length + 1 + 26 + 1), 't=***', '***']);
  });

  it('does not hold the output back for ever: a prompt shows', async () => {
    const tab = await openTab(stores);
    const commandId = newCommandId(placeOf());
    const spec = script('printf "sp"; sleep 300');
    await submit(stores, { tab }, spec, placeOf(), commandId, box.seal(commandId, { SECRET: 'splitme-secret' }));
    await using test = await startWorkerOn(stores, redis.url, {}, {}, { secrets: box });
    const over = test.run(commandId);
    await until('the prompt', async () => (await readWholeLog(stores, commandId)).output.toString() === 'sp');
    await stores.commands.requestKill(commandId, { signal: 'SIGKILL', graceMs: 0, reason: 'cancelled' });
    await within('the end', over);
  });
});
