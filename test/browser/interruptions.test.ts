/** What a page keeps through the death of its node, a reload, a copy of its tab, a long absence and a node that drains. */
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type Balancer,
  numbered,
  numberedText,
  openWebTab,
  shotBoth,
  startBalancer,
  startBrowser,
  type WebTab,
  webTab,
} from '../support/browser.js';
import { type Cluster, startCluster } from '../support/cluster.js';
import { dial } from '../support/tab.js';
import { DEFAULT_LIMIT_MS, until } from '../support/wait.js';

const GRACE_MS = 2_500;

describe('a page behind a balancer over two nodes', () => {
  let cluster: Cluster;
  let browser: Browser;
  let balancer: Balancer;

  beforeAll(async () => {
    const env = { HOMING_GRACE_MS: String(GRACE_MS), HOMING_LEASE_MS: '2000' };
    [cluster, browser] = await Promise.all([startCluster({ nodes: 2, workers: 1, env }), startBrowser()]);
    balancer = await startBalancer(cluster);
  });
  afterAll(async () => {
    await browser?.close();
    await balancer?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });
  const tabIn = (conversation: string) => openWebTab(browser, balancer.url, cluster.token(), { conversation });
  const lastLine = async (tab: WebTab) => Number((await tab.terminalText()).split(' ').at(-1));

  it('[DE6] a reload in the middle of output shows what was there and what follows, nothing twice', async () => {
    const tab = await tabIn('reload');
    const commandId = await tab.run(numbered('line', 100, 20));
    await until('some output', async () => (await lastLine(tab)) > 10);
    const sessionId = await tab.sessionId();
    await tab.page.reload();
    await tab.live();
    expect(await tab.sessionId()).toBe(sessionId);
    // The same command is in view without a click.
    expect(await tab.page.locator('.row[aria-selected="true"]').getAttribute('data-command')).toBe(commandId);
    await tab.over();
    await expect.poll(() => tab.terminalText()).toBe(numberedText('line', 100));
    expect(tab.page.url()).not.toContain('token');
  });

  it('[SE4] a copied tab gets a session of its own, says so, and leaves the first one its command', async () => {
    const tab = await tabIn('copied');
    const commandId = await tab.run(numbered('kept', 60, 30));
    await tab.page.locator('.terminal-place[data-feed="live"]').waitFor();
    const stored = await tab.page.evaluate(() => JSON.stringify(Object.entries(sessionStorage)));

    const page = await tab.page.context().newPage();
    page.setDefaultTimeout(DEFAULT_LIMIT_MS);
    const copy = webTab(page, balancer.url);
    // What a browser does when it duplicates a tab: the new one begins with a copy of the storage.
    await page.addInitScript((text) => {
      if (sessionStorage.length > 0) return;
      for (const [key, value] of JSON.parse(text)) sessionStorage.setItem(key, value);
    }, stored);
    await page.goto(balancer.url);
    await copy.live();
    await page.getByText('This tab is a copy of another one').waitFor();
    await shotBoth(copy, 'copied-tab');
    expect(await copy.sessionId()).not.toBe(await tab.sessionId());
    await tab.over();
    await expect.poll(() => tab.terminalText()).toBe(numberedText('kept', 60));
    const row = page.locator(`.row[data-command="${commandId}"]`);
    await until('whose it is', async () =>
      (await row.textContent())?.includes(`tab ${(await tab.sessionId()).slice(-4)}`),
    );
    await page.close();
  });

  it('[SE6] a node that drains says so, and the page moves on by itself', async () => {
    const tab = await tabIn('draining');
    await tab.run(numbered('on', 60, 50));
    const sessionId = await tab.sessionId();
    balancer.use(1);
    // A page leaves at a moment of its choice, which may be at once: late enough that what it says until then is seen.
    await tab.page.evaluate(() => {
      Math.random = () => 0.9;
    });
    cluster.node(0).signal('SIGTERM');
    await tab.page.getByText('This node is being stopped.').waitFor();
    await shotBoth(tab, 'draining');
    await tab.over();
    await expect.poll(() => tab.terminalText()).toBe(numberedText('on', 60));
    expect(await tab.sessionId()).toBe(sessionId);
    await until('the end of the node', () => cluster.node(0).exitCode !== null);
    await cluster.node(0).restart();
  });

  it('[SE3, DE1] a node killed under the page: it goes on at the other one, no reload, no line twice', async () => {
    const tab = await tabIn('killed');
    const loads: string[] = [];
    tab.page.on('load', () => loads.push('load'));
    await tab.run(numbered('line', 150, 20));
    await until('some output', async () => (await lastLine(tab)) > 10);
    await cluster.node(1).kill();
    await tab.page.locator('[data-connection="away"], [data-connection="connecting"]').waitFor();
    balancer.use(0);
    await tab.over();
    await expect.poll(() => tab.terminalText()).toBe(numberedText('line', 150));
    expect(loads).toEqual([]);
    await cluster.node(1).restart();
  });

  it('[OW6, SE3] offline past the grace: the page says what happened, and has its command again', async () => {
    const tab = await tabIn('offline');
    const commandId = await tab.run(`${numbered('early', 5)}; sleep 60`);
    await until('its output', async () => (await lastLine(tab)) === 5);
    await tab.page.context().setOffline(true);
    balancer.proxy.cut();
    await tab.page.getByText('This device is offline.').waitFor();
    await shotBoth(tab, 'offline');
    await until('the end of its session', async () => {
      const { json } = await cluster.http('GET', '/v1/conversations/offline/sessions');
      return json.sessions.length === 0;
    });
    await tab.page.context().setOffline(false);
    await tab.live();
    await tab.page.getByText('This tab was away for longer than its session is kept.').waitFor();
    // Nobody else was there: its own new session adopts the command.
    const row = tab.page.locator(`.row[data-command="${commandId}"]`);
    await until('the command', async () => (await row.textContent())?.includes('this tab, before'));
    await expect.poll(() => tab.terminalText()).toBe(numberedText('early', 5));
    await shotBoth(tab, 'back-after-grace');
  });

  it('[SE1] a session that was taken over stays as it was and says so', async () => {
    const tab = await tabIn('taken');
    const { sessionId, resumeToken } = await tab.page.evaluate(() =>
      JSON.parse(sessionStorage.getItem('homing-web:session:taken') ?? '{}'),
    );
    // Without a nonce whoever knows the resume token takes over.
    const other = await dial(cluster.node(0).url, { token: cluster.token() });
    const params = { sessionId, resumeToken };
    other.ws.send(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'session.resume', params }));
    await tab.page.locator('.over[data-cause="superseded"]').waitFor();
    await shotBoth(tab, 'superseded');
    await tab.page.getByRole('button', { name: 'Use a new session here' }).click();
    await tab.live();
    expect(await tab.sessionId()).not.toBe(sessionId);
    other.ws.close();
    await other.closed;
  });
});
