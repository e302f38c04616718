/** What stands around the console: pages of other origins, nodes that are being replaced, and the desktop that shows its notices. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openWebTab, startBrowser } from '../support/browser.js';
import { type Cluster, startCluster } from '../support/cluster.js';
import { until } from '../support/wait.js';

const SDK = readFileSync(fileURLToPath(new URL('../../dist/client/browser.js', import.meta.url)));

const PAGE = `<!doctype html><title>application</title>
<script type="module">import { createBackend } from '/sdk.js'; Object.assign(window, { createBackend });</script>`;

/** An application of somebody else's, on an origin of its own. */
async function startApplication(): Promise<{ readonly server: Server; readonly origin: string }> {
  const server = createServer((request, response) => {
    const isSdk = request.url === '/sdk.js';
    response.setHeader('content-type', isSdk ? 'text/javascript' : 'text/html');
    response.end(isSdk ? SDK : PAGE);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { server, origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

describe('around the console', () => {
  let application: Awaited<ReturnType<typeof startApplication>>;
  let stranger: Awaited<ReturnType<typeof startApplication>>;
  let cluster: Cluster;
  let browser: Browser;
  let folder: string;
  /** One for all of them, since a new one costs more than what they do. */
  let page: Page;

  beforeAll(async () => {
    [application, stranger] = await Promise.all([startApplication(), startApplication()]);
    const env = { HOMING_PUBLIC_ORIGINS: `${application.origin}/` };
    [cluster, browser] = await Promise.all([startCluster({ nodes: 1, workers: 1, env }), startBrowser()]);
    page = await browser.newPage();
    folder = await mkdtemp(join(tmpdir(), 'homing-surroundings-'));
  });
  afterAll(async () => {
    await rm(folder, { recursive: true, force: true });
    await browser?.close();
    await cluster?.[Symbol.asyncDispose]();
    for (const { server } of [application, stranger]) {
      server?.closeAllConnections();
      server?.close();
    }
  });

  it('[IS1] a page of an origin that is named runs and follows a command over HTTP; of another one it can not', async () => {
    /** In the page. */
    const useIt = async ({ url, token }: { url: string; token: string }) => {
      const { createBackend } = window as unknown as Pick<typeof import('../../src/client/index.js'), 'createBackend'>;
      const backend = createBackend({ url, token, timeoutMs: 1_500 });
      try {
        const { commandId } = await backend.run({ script: 'echo over there', conversation: 'elsewhere' });
        const types: string[] = [];
        for await (const { type } of backend.follow(commandId)) types.push(type);
        return { types, log: await backend.log(commandId) };
      } catch (error) {
        return { failed: (error as Error).name };
      }
    };
    const given = { url: cluster.node(0).url, token: cluster.token() };
    await page.goto(application.origin);
    expect(await page.evaluate(useIt, given)).toEqual({
      types: ['started', 'output', 'ended'],
      log: 'over there\n',
    });
    await page.goto(stranger.origin);
    expect(await page.evaluate(useIt, given)).toHaveProperty('failed');
  });

  it('[OW9] a page that nobody sees shows an end as a notification of the desktop, which leads back to it', async () => {
    const { url } = cluster.node(0);
    await page.context().grantPermissions(['notifications'], { origin: url });
    await page.addInitScript(() => {
      const seen: Notification[] = [];
      const Real = Notification;
      Object.assign(window, { seen });
      // The browser's own, looked at: it has no list of what a page shows.
      window.Notification = class extends Real {
        constructor(title: string, options?: NotificationOptions) {
          super(title, options);
          seen.push(this);
        }
      };
    });
    const tab = await openWebTab(browser, url, cluster.token(), { conversation: 'desktop', page });
    const gate = join(folder, 'seen-by-nobody');
    const first = await tab.run(`until [ -e ${gate} ]; do sleep 0.05; done; echo done; exit 3`);
    await tab.run('true');
    // Headless, every page counts as seen.
    await page.evaluate(() => {
      Object.defineProperty(document, 'hidden', { get: () => true, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    });
    await writeFile(gate, '');
    const shown = () =>
      page.evaluate(() =>
        (window as unknown as { seen: Notification[] }).seen.map(({ title, body, tag }) => ({ title, body, tag })),
      );
    const [notice] = await until('a notification', async () => {
      const all = (await shown()).filter(({ tag }) => tag.includes(first));
      return all.length > 0 && all;
    });
    expect(notice?.title).toMatch(/3/);
    expect(notice?.body).toContain('desktop');
    expect(await page.title()).toMatch(/^\(\d\)/);
    await page.evaluate((id) => {
      const { seen } = window as unknown as { seen: Notification[] };
      seen.find(({ tag }) => tag.includes(id))?.dispatchEvent(new Event('click'));
    }, first);
    await page.locator(`.row[data-command="${first}"][aria-selected="true"]`).waitFor();
    expect(tab.faults).toEqual([]);
  });

  it('a page whose parts a node does not have says so and loads itself again, and stops where that does not help', async () => {
    let missing = 2;
    // As a node of another version answers; of the styles or of the script.
    await page.route(/\/assets\//, (route) =>
      missing-- > 0 ? route.fulfill({ status: 404, body: '{}' }) : route.continue(),
    );
    const { url } = cluster.node(0);
    const index = await fetch(url);
    expect(index.headers.get('cache-control')).toBe('no-cache');
    const script = /assets\/[^"]+\.js/.exec(await index.text())?.[0];
    expect((await fetch(`${url}/${script}`)).headers.get('cache-control')).toContain('immutable');
    expect((await fetch(`${url}/assets/of-another-version.js`)).headers.get('cache-control')).toBe('no-store');

    await page.goto(`${url}/livez`);
    await page.evaluate(() => sessionStorage.clear());
    await page.goto(`${url}/#token=${cluster.token()}&conversation=deploy`, { waitUntil: 'commit' });
    await page.getByText('Homing was just updated.').waitFor();
    await page.locator('[data-connection="live"]').waitFor();
    expect(page.url()).not.toContain('token');

    missing = Number.POSITIVE_INFINITY;
    await page.evaluate(() =>
      sessionStorage.setItem('homing-web:reloads', JSON.stringify({ times: 4, atMs: Date.now() })),
    );
    // The last test of this page: its clock stays ours.
    await page.clock.install();
    await page.reload({ waitUntil: 'commit' });
    await page.getByText('Homing was just updated.').waitFor();
    await page.clock.fastForward(8_000);
    await page.getByText('A part of this page could not be loaded.').waitFor();
    missing = 0;
    await page.getByRole('button', { name: 'Load again' }).click();
    await page.locator('[data-connection="live"]').waitFor();
  });
});
