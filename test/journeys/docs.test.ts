/** Every snippet of the documents about the SDK and embedding runs as it is written, and prints what it should. */
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openApi } from '../../src/gateway/openapi.js';
import { httpRoutes } from '../../src/protocol/http.js';
import { protocolReference } from '../../src/protocol/reference.js';
import { signedHeaders } from '../../src/webhook/sign.js';
import { type Cluster, startCluster } from '../support/cluster.js';
import { ROOT, runModule, snippetsOf, startProgram } from '../support/snippets.js';
import type { Tab } from '../support/tab.js';

let cluster: Cluster;
let tab: Tab;
let env: Record<string, string>;

beforeAll(async () => {
  cluster = await startCluster({ nodes: 1, workers: 1 });
  tab = await cluster.tab(0, { conversation: 'chat-1' });
  env = {
    HOMING_URL: cluster.node(0).url,
    HOMING_TOKEN: cluster.token(),
    HOMING_DELEGATE_TOKEN: cluster.token({
      sub: 'backend',
      scope: 'read run kill delegate',
      conversations: ['chat-*'],
    }),
    HOMING_JWT_SECRET: cluster.secret,
    TAB_SESSION: tab.sessionId,
  };
});
afterAll(() => cluster?.[Symbol.asyncDispose]());

async function prints(source: string | undefined): Promise<string> {
  expect(source).toBeDefined();
  const { code, stdout, stderr } = await runModule(source as string, env);
  expect([code, stderr]).toEqual([0, '']);
  return stdout;
}

describe('docs/sdk.md', () => {
  const [session, states, command, backend, ...more] = snippetsOf('docs/sdk.md', 'js');

  it('has these snippets', () => expect(more).toEqual([]));
  it('[DE1] runs a command in a session', async () => {
    expect(await prints(session)).toBe('one\ntwo\nexited 0\n');
  });
  it('shows the state of a session', async () => {
    expect(await prints(states)).toBe('live\nclosed\n');
  });
  it('writes to a command and reads its bytes', async () => {
    expect(await prints(command)).toBe('a line\n\n');
  });
  it('[CO1] speaks HTTP without a session, and carries an origin', async () => {
    expect(await prints(backend)).toBe('from a backend\n0 from a backend\n\n');
    const { commands } = (await cluster.http('GET', '/v1/conversations/docs/commands?limit=1')).json;
    expect(commands).toMatchObject([{ script: 'true' }]);
  });
});

describe('docs/embedding.md', () => {
  const [page, server, follow, _webhook, ...more] = snippetsOf('docs/embedding.md', 'js');
  const [userToken, backendToken, curl, ...moreShell] = snippetsOf('docs/embedding.md', 'sh');

  it('has these snippets', () => expect([more, moreShell]).toEqual([[], []]));
  it('[IS1] makes a token for a tab and one for the server', async () => {
    for (const [script, sub] of [
      [userToken, 'ann'],
      [backendToken, 'my-backend'],
    ] as const) {
      const program = startProgram('bash', ['-euc', script as string], env);
      expect([await program.ended(), program.stderr]).toEqual([0, '']);
      const claims = JSON.parse(Buffer.from(program.stdout.split('.')[1] ?? '', 'base64url').toString());
      expect(claims).toMatchObject({ sub });
    }
  });
  it('opens a session for a tab', async () => {
    expect(await prints(page)).toMatch(/^ses_[a-z2-7]{16}_[a-z2-7]{26}\n$/);
  });
  it('[OW1] starts a command for the tab that the server names', async () => {
    expect(await prints(server)).toBe('exited 0 for the tab\n\n');
    const [commandId] = await tab
      .waitFor('the command', ({ method }) => method === 'command.owner')
      .then(({ params }) => [params.commandId]);
    await tab.ended(commandId);
    expect(tab.output(commandId)).toBe('for the tab\n');
  });
  it('follows a conversation', async () => {
    expect(await prints(follow)).toMatch(
      /^cmd_\S+ exited 3\ngo on after this cursor when the server is started again\n$/,
    );
  });
  it('does the same with curl', async () => {
    const program = startProgram('bash', ['-euo', 'pipefail', '-c', curl as string], env);
    expect([await program.ended(), program.stderr]).toEqual([0, '']);
    expect(program.stdout).toContain('event: command.output\n');
    expect(program.stdout).toContain('event: command.ended\n');
    expect(program.stdout.endsWith('with curl\n')).toBe(true);
  });
});

describe('docs/embedding.md on webhooks', () => {
  it('tells a message of Homing from any other', async () => {
    const [, , , webhook] = snippetsOf('docs/embedding.md', 'js');
    const secret = 'a secret of 24 characters';
    const signed = (nowMs: number) => JSON.stringify(signedHeaders(secret, 'cmd-ended', '{"a":1}', nowMs));
    const check = (headers: string, body: string) => `isFromHoming(${headers}, ${JSON.stringify(body)}, '${secret}')`;
    const now = signed(Date.now());
    const checks = [
      check(now, '{"a":1}'),
      check(now, '{"a":2}'),
      check(signed(Date.now() - 600_000), '{"a":1}'),
      check('{}', '{"a":1}'),
    ];
    const { stdout, stderr } = await runModule(`${webhook}\nconsole.log(${checks.join(', ')});`, env);
    expect([stdout, stderr]).toEqual(['true false false false\n', '']);
  });
});

describe('the documents', () => {
  it('docs/protocol.md is what the schemas say: run "npm run docs" where it is not', () => {
    expect(readFileSync(join(ROOT, 'docs/protocol.md'), 'utf8')).toBe(protocolReference());
  });
  it('name only files that are there', () => {
    for (const document of ['docs/sdk.md', 'docs/embedding.md', 'docs/protocol.md', 'docs/decisions.md']) {
      const text = readFileSync(join(ROOT, document), 'utf8');
      const links = [...text.matchAll(/\]\((?!http)([^)#\s]+)/g)].map(([, path]) =>
        join(ROOT, dirname(document), path as string),
      );
      const named = [...text.matchAll(/\b(?:src|docs|test|examples)\/[\w./-]+\.\w+/g)].map(([path]) =>
        join(ROOT, path),
      );
      expect(
        [...links, ...named].filter((path) => !existsSync(path)),
        document,
      ).toEqual([]);
    }
  });
  it('the description names as many routes as there are', () => {
    expect(Object.keys(openApi('0').paths as object).length).toBeLessThanOrEqual(Object.keys(httpRoutes).length);
  });
});
