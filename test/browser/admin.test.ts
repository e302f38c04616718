/** The operators' pages in a real browser: nodes, workers, sessions, the trace of a command, the queue board, a drain by its button. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { axe } from '../support/axe.js';
import { startBrowser, WIDE } from '../support/browser.js';
import { type Cluster, startCluster } from '../support/cluster.js';
import { DEFAULT_LIMIT_MS } from '../support/wait.js';

const SCREENS = fileURLToPath(new URL('../../.artifacts/screens/', import.meta.url));

describe("the operators' pages", () => {
  let cluster: Cluster;
  let browser: Browser;
  let page: Page;
  const faults: string[] = [];
  const outside: string[] = [];
  const blocked = new Set<string>();

  beforeAll(async () => {
    [cluster, browser] = await Promise.all([startCluster({ nodes: 2, workers: 1 }), startBrowser()]);
    const context = await browser.newContext({
      viewport: WIDE,
      httpCredentials: { username: 'ops', password: cluster.adminToken },
    });
    page = await context.newPage();
    page.setDefaultTimeout(DEFAULT_LIMIT_MS);
    page.on('pageerror', (error) => faults.push(error.message));
    // What the policy of a page keeps back (the board's fonts) fails by itself.
    page.on('requestfailed', (request) => void blocked.add(request.url()));
    page.on('request', (request) => {
      if (!request.url().startsWith(ops())) outside.push(request.url());
    });
  });
  afterAll(async () => {
    await browser?.close();
    await cluster?.[Symbol.asyncDispose]();
  });
  const ops = () => cluster.node(0).opsUrl;
  const shot = (name: string) => page.screenshot({ path: join(SCREENS, `admin-${name}.png`) });
  const rows = (heading: string) => page.locator(`h2:has-text("${heading}") + .wide tbody tr`);

  it('show a command on its way from one tab to another, from the list of nodes down to its trace', async () => {
    const conversation = 'admin';
    const [a, b] = [await cluster.tab(0, { conversation }), await cluster.tab(1, { conversation })];
    const commandId = await a.run({ argv: ['sleep', '60'] });
    await a.waitFor('the start', ({ method }) => method === 'command.started');

    await page.goto(`${ops()}/admin`);
    expect(await rows('Nodes').count()).toBe(2);
    expect(await rows('Workers').first().textContent()).toContain('default');
    expect(await axe(page)).toEqual([]);
    await shot('nodes');

    await page.getByRole('link', { name: cluster.node(0).id }).click();
    await page.getByRole('link', { name: a.sessionId }).click();
    await page.getByRole('link', { name: commandId }).click();
    await a.close();
    await b.waitFor('the move', ({ method }) => method === 'command.owner');
    await page.reload();
    const trace = rows('What happened to its entries');
    expect(await trace.count()).toBe(3);
    const words = await trace.allTextContents();
    expect(words.map((text) => /attach|move/.exec(text)?.[0])).toEqual(['attach', 'attach', 'move']);
    expect(words[2]).toContain('owner_closed');
    expect(await axe(page)).toEqual([]);
    await shot('trace');
  });

  it('show the queues as they are, with nothing to press that would change them', async () => {
    await page.goto(`${ops()}/admin`);
    await page.getByRole('link', { name: 'Queue board' }).click();
    await page.locator('text=default').first().waitFor();
    await page.goto(`${ops()}/admin/queues/queue/default?status=active`);
    await page.locator('text=sleep').first().waitFor();
    expect(await page.getByRole('button', { name: /retry|promote|clean|remove|delete|pause/i }).count()).toBe(0);
    await shot('board');
  });

  it('[SE6] drain a node by its button', async () => {
    await page.goto(`${ops()}/admin/nodes/${cluster.node(1).id}`);
    await page.getByRole('button', { name: 'Drain' }).click();
    await expect.poll(() => cluster.node(1).exitCode).toBe(0);
    expect(faults).toEqual([]);
    expect(outside.filter((url) => !blocked.has(url))).toEqual([]);
  });
});
