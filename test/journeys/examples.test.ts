/** The examples run as they are: as programs against real processes, and in the system's Chromium. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { build } from 'vite';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startBrowser } from '../support/browser.js';
import { type Cluster, startCluster } from '../support/cluster.js';
import { createStage } from '../support/programs.js';
import { ROOT, startProgram } from '../support/snippets.js';
import { until } from '../support/wait.js';

let site: Server;
let origin = '';
let cluster: Cluster;
let browser: Browser;
const files = new Map<string, { type: string; body: () => string }>();

/** The site of an application: its pages, and tokens for whoever is logged in. */
beforeAll(async () => {
  site = createServer((request, response) => {
    const file = files.get((request.url ?? '').split('?')[0] ?? '');
    if (file === undefined) return response.writeHead(404).end();
    response.writeHead(200, { 'content-type': file.type }).end(file.body());
  });
  await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve));
  origin = `http://127.0.0.1:${(site.address() as AddressInfo).port}`;
  cluster = await startCluster({ nodes: 1, workers: 1, env: { HOMING_PUBLIC_ORIGINS: origin } });
  browser = await startBrowser();
  files.set('/token', { type: 'text/plain', body: () => cluster.token() });
}, 60_000);

afterAll(async () => {
  await browser?.close();
  site?.close();
  await cluster?.[Symbol.asyncDispose]();
});

const environment = (token: string) => ({ HOMING_URL: cluster.node(0).url, HOMING_TOKEN: token });

describe('a Node script', () => {
  it('[CO8] prints what the command prints and ends as it ended', async () => {
    const script = startProgram(process.execPath, ['examples/node-script.mjs', 'echo from a script; exit 3'], {
      ...environment(cluster.token()),
    });
    expect([await script.ended(), script.stdout, script.stderr]).toEqual([3, 'from a script\n', '']);
  });
});

describe('an agent backend', () => {
  it('[OW1] starts commands for the tabs of its users, and follows each chat over one stream', async () => {
    const token = cluster.token({ sub: 'backend', scope: 'read run kill delegate', conversations: ['chat-*'] });
    const backend = startProgram(process.execPath, ['examples/agent-backend.mjs'], {
      ...environment(token),
      PORT: '0',
    });
    try {
      const [, url] = await backend.says(/listening on (http:\S+)/);
      await using ann = await cluster.tab(0, { conversation: 'chat-ann' });
      await using bob = await cluster.tab(0, { conversation: 'chat-ann', sub: 'bob' });
      const post = async (sessionId: string, script: string) => {
        const body = JSON.stringify({ sessionId, script });
        const answer = await fetch(`${url}/chats/chat-ann/tools`, { method: 'POST', body });
        return { status: answer.status, body: (await answer.json()) as { commandId: string; code?: string } };
      };
      const [forAnn, forBob] = await Promise.all([
        post(ann.sessionId, 'echo for ann'),
        post(bob.sessionId, 'echo for bob; exit 2'),
      ]);
      expect([forAnn.status, forBob.status]).toEqual([202, 202]);
      await Promise.all([ann.ended(forAnn.body.commandId), bob.ended(forBob.body.commandId)]);
      expect(ann.output(forAnn.body.commandId)).toBe('for ann\n');
      expect(bob.output(forBob.body.commandId)).toBe('for bob\n');
      expect([ann.entries(forBob.body.commandId), bob.entries(forAnn.body.commandId)]).toEqual([[], []]);

      const ended = await until('both ends', async () => {
        const answer = (await (await fetch(`${url}/chats/chat-ann/ended`)).json()) as { ended: { code: number }[] };
        return answer.ended.length >= 2 ? answer.ended : undefined;
      });
      expect(ended.map(({ code }) => code).sort()).toEqual([0, 2]);
      const stranger = await post(ann.sessionId.replace(/.{4}$/, 'aaaa'), 'true');
      expect([stranger.status, stranger.body.code]).toEqual([400, 'ORIGIN_UNKNOWN']);
      expect(await cluster.metric(0, 'homing_event_streams')).toBe(1);
      expect(backend.stderr).toBe('');
    } finally {
      await backend.stop();
    }
  }, 60_000);
});

describe('a page without a bundler', () => {
  it('[SE3] runs a command, and after a reload in mid-output goes on with what it had started', async () => {
    const page = readFileSync(join(ROOT, 'examples/page.html'), 'utf8');
    const html = page.replace('<html lang="en">', `<html lang="en" data-url="${cluster.node(0).url}">`);
    files.set('/page.html', { type: 'text/html', body: () => html });
    files.set('/browser.js', {
      type: 'text/javascript',
      body: () => readFileSync(join(ROOT, 'dist/client/browser.js'), 'utf8'),
    });
    const tab = await browser.newPage();
    const faults: string[] = [];
    tab.on('pageerror', (error) => faults.push(error.message));
    // What the former page showed in its last moment.
    await tab.addInitScript(() => {
      const shown = () => document.getElementById('output')?.textContent ?? '';
      addEventListener('pagehide', () => sessionStorage.setItem('shown', shown()));
    });
    await tab.goto(`${origin}/page.html`);
    const output = async () => (await tab.locator('#output').textContent()) ?? '';
    await until('a session', async () => (await tab.locator('#state').textContent()) === 'live');
    await tab.locator('#script').fill('for i in 1 2 3 4 5 6; do echo line $i; sleep 0.4; done');
    await tab.locator('button').click();
    await until('some output', async () => (await output()).includes('line 2\n'));
    await tab.reload();
    await until('the end', async () => (await output()).includes('exited 0'), 20_000);
    const all = `${await tab.evaluate(() => sessionStorage.getItem('shown'))}${await output()}`;
    expect(all.match(/line \d/g)).toEqual([1, 2, 3, 4, 5, 6].map((i) => `line ${i}`));
    expect(faults).toEqual([]);
    await tab.close();
  }, 60_000);
});

describe('a React hook', () => {
  it('fits the types of React and of the client', () => {
    const tsc = spawnSync('npx', ['tsc', '--noEmit', '-p', 'examples/tsconfig.json'], { cwd: ROOT, encoding: 'utf8' });
    expect(tsc.stdout + tsc.stderr).toBe('');
  }, 60_000);

  it('shows a command as it runs, and its end', async () => {
    await using stage = await createStage();
    const gate = join(stage.folder, 'react.open');
    const entry = 'virtual:entry';
    const source = `
      import { createElement } from 'react';
      import { createRoot } from 'react-dom/client';
      import { Tool, useSession } from '${join(ROOT, 'examples/use-command.tsx')}';
      function App() {
        const { session, state } = useSession({
          url: '${cluster.node(0).url}', conversation: 'react', token: async () => (await fetch('/token')).text(),
        });
        return createElement('main', null, createElement('i', null, state.state),
          createElement(Tool, { session, script: 'echo one; until [ -e ${gate} ]; do sleep 0.1; done; echo two; exit 4' }));
      }
      createRoot(document.body).render(createElement(App));
    `;
    const made = await build({
      configFile: false,
      mode: 'production',
      logLevel: 'error',
      root: ROOT,
      resolve: {
        alias: [
          { find: /^react-dom\/client$/, replacement: 'preact/compat/client' },
          { find: /^react\/jsx(-dev)?-runtime$/, replacement: 'preact/jsx-runtime' },
          { find: /^react$/, replacement: 'preact/compat' },
          { find: /^homing\/client$/, replacement: join(ROOT, 'src/client/index.ts') },
        ],
      },
      plugins: [
        {
          name: 'entry',
          resolveId: (id) => (id === entry ? `\0${entry}` : undefined),
          load: (id) => (id === `\0${entry}` ? source : undefined),
        },
      ],
      build: { write: false, minify: false, rollupOptions: { input: entry } },
    });
    const [bundle] = [made].flat();
    if (bundle === undefined || !('output' in bundle)) throw new Error('nothing was built');
    files.set('/react.js', { type: 'text/javascript', body: () => bundle.output[0].code });
    const html = '<!doctype html><title>React</title><body></body><script type="module" src="/react.js"></script>';
    files.set('/react.html', { type: 'text/html', body: () => html });

    const tab = await browser.newPage();
    const faults: string[] = [];
    tab.on('pageerror', (error) => faults.push(error.message));
    await tab.goto(`${origin}/react.html`);
    await until('a session', async () => (await tab.locator('i').textContent()) === 'live');
    await tab.getByText('Run', { exact: true }).click();
    await until('its first line', async () => (await tab.locator('pre').textContent())?.includes('one'));
    expect(await tab.getByText('Stop').count()).toBe(1);
    stage.open('react');
    await until('its end', async () => (await tab.locator('p').allInnerTexts()).includes('exit 4'));
    expect(await tab.locator('pre').textContent()).toBe('one\ntwo\n');
    expect(faults).toEqual([]);
    await tab.close();
  }, 60_000);
});
