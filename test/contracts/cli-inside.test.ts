/** Commands that start commands (OW10), with the programs as they are. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Household, startHousehold } from '../support/household.js';
import { until, within } from '../support/wait.js';

let home: Household;
beforeAll(async () => {
  home = await startHousehold(['--nodes', '2', '--workers', '2']);
});
afterAll(() => home?.[Symbol.asyncDispose]());

// biome-ignore lint/suspicious/noExplicitAny: snapshots, each test looks at what it needs
type Listed = any;

async function listed(conversation: string): Promise<Listed[]> {
  const { stdout } = await home.homing('ps', '-c', conversation, '--all', '--json');
  return stdout
    .trim()
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line));
}
const labelled = async (conversation: string, name: string) =>
  (await listed(conversation)).find((command) => command.labels.name === name);

const get = (path: string, token: string) =>
  fetch(`${home.runFile().url}${path}`, { headers: { authorization: `Bearer ${token}` } });

describe('[OW10] homing run inside a command', () => {
  it('needs no options, three deep: the origin is the same, parents are listed, output and status come back', async () => {
    const script = (deeper: string) => `echo "$HOMING_SESSION_ID"; ${deeper}`;
    const third = script('exit 7');
    const second = script(`homing run --label name=third -- sh -c '${third}'`);
    const first = script(
      `homing run --label name=second -- sh -c "${second.replaceAll('"', '\\"').replaceAll('$', '\\$')}"`,
    );
    const { code, stdout } = await home.homing('run', '-c', 'deep', '--label', 'name=first', '--', 'sh', '-c', first);
    const lines = stdout.trim().split('\n');
    expect(code).toBe(7);
    expect(lines).toHaveLength(3);
    expect(new Set(lines).size).toBe(1);
    const [one, two, three] = await Promise.all(['first', 'second', 'third'].map((name) => labelled('deep', name)));
    expect(lines[0]).toBe(one.originSessionId);
    expect([two, three].map((command) => command.originSessionId)).toEqual([lines[0], lines[0]]);
    expect([two, three].map((command) => command.parentCommandId)).toEqual([one.commandId, two.commandId]);
  });

  it('passes input, standard error and the exit status through', async () => {
    const run = home.startWithInput(
      'run',
      '-c',
      'through',
      '--',
      'homing',
      'run',
      '--',
      'sh',
      '-c',
      'cat; echo err >&2; exit 5',
    );
    run.child.stdin?.end('from far away\n');
    expect(await within('its end', run.ended, 20_000)).toBe(5);
    expect(run.stdout()).toBe('from far away\n');
    expect(run.stderr()).toBe('err\n');
  });
});

describe('[CO5] killing a command', () => {
  it('ends what it started and what that started, but what was detached goes on', async () => {
    const script =
      'homing run --detach --label name=free -- sleep 300; homing run --label name=child -- sh -c "homing run --label name=grandchild -- sleep 300"';
    const run = home.start('run', '-c', 'family', '--label', 'name=parent', '--', 'sh', '-c', script);
    await until('the family to run', async () => (await labelled('family', 'grandchild'))?.state === 'running', 20_000);
    const parent = await labelled('family', 'parent');
    await home.homing('kill', parent.commandId);
    await within('its end', run.ended, 20_000);
    await until('the end of the family', async () =>
      ['child', 'grandchild'].every(async (name) => (await labelled('family', name))?.state === 'ended'),
    );
    for (const name of ['child', 'grandchild']) {
      await until(`the end of the ${name}`, async () => (await labelled('family', name))?.state === 'ended');
      expect((await labelled('family', name)).outcome.reason).toBe('cancelled');
    }
    const free = await labelled('family', 'free');
    expect(free.state).toBe('running');
    await home.homing('kill', '--signal', 'KILL', free.commandId);
  }, 60_000);
});

describe('[IS1] the token of a command', () => {
  it('reaches what the command started and nothing else, and is dead when the command is over', async () => {
    const other = (await home.homing('run', '-c', 'tokens', '--detach', '--', 'sleep', '300')).stdout.trim();
    // The token is masked in output, so it leaves in a form that no mask knows.
    const script =
      'echo "$HOMING_TOKEN" | tr a-z2-7. A-Z2-7-; id=$(homing run --detach -- sleep 300); echo "$id"; echo ready; while :; do sleep 0.1; done';
    const run = home.start('run', '-c', 'tokens', '--', 'sh', '-c', script);
    await until('the command to be ready', () => run.stdout().includes('ready'));
    const [shouted = '', child = ''] = run.stdout().split('\n');
    const token = shouted.toLowerCase().replace('-', '.');
    const own = token.split('.')[0] ?? '';
    expect((await get(`/v1/commands/${child}`, token)).status).toBe(200);
    expect((await get(`/v1/commands/${other}`, token)).status).toBe(404);
    expect((await get(`/v1/commands/${own}`, token)).status).toBe(404);
    expect((await get('/v1/conversations/tokens/commands', token)).status).toBe(403);
    expect((await get('/v1/conversations/tokens/sessions', token)).status).toBe(403);
    expect((await get(`/v1/commands/${child}`, `${token.slice(0, -1)}x`)).status).toBe(401);
    await home.homing('kill', '--signal', 'KILL', own);
    await run.ended;
    await until('the token to be dead', async () => (await get(`/v1/commands/${child}`, token)).status === 401);
    for (const id of [other, child]) await home.homing('kill', '--signal', 'KILL', id);
  }, 60_000);
});
