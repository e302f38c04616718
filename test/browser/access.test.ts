/** The page for everybody: by keyboard, by screen reader, in both looks, at both widths; its token, its policy, its weight. */
import { readdirSync, statSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { axe } from '../support/axe.js';
import { NARROW, openWebTab, shotBoth, startBrowser, WIDE } from '../support/browser.js';
import { type Cluster, startCluster } from '../support/cluster.js';
import { until } from '../support/wait.js';

const MAX_APP_BYTES = 200_000;

describe('the page for everybody', () => {
  let cluster: Cluster;
  let browser: Browser;

  beforeAll(async () => {
    [cluster, browser] = await Promise.all([startCluster({ nodes: 1, workers: 1 }), startBrowser()]);
  });
  afterAll(async () => {
    await browser?.close();
    await cluster?.[Symbol.asyncDispose]();
  });
  const url = () => cluster.node(0).url;

  it.each([
    ['light', WIDE],
    ['dark', NARROW],
  ] as const)('has no accessibility findings in any view (%s, %o)', async (colorScheme, viewport) => {
    const conversation = `axe-${colorScheme}`;
    const tab = await openWebTab(browser, url(), cluster.token(), { conversation, colorScheme, viewport });
    const { page } = tab;
    const findings: string[] = [];
    const check = async (view: string) => {
      findings.push(...(await axe(page)).map((finding) => `${view}: ${finding}`));
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      if (overflow > 0) findings.push(`${view}: ${overflow} px wider than the window`);
      await tab.shot(`${view}-${colorScheme}-${viewport.width}`);
    };

    await check('no-commands');
    await tab.run('exit 3');
    await tab.over();
    await tab.run(`printf '\\033[31mred \\033[32mgreen \\033[33myellow \\033[34mblue\\033[0m\\n'; ls -la /; sleep 60`);
    await page.locator('.terminal-place[data-feed="live"]').waitFor();
    await check('terminal');
    await page.getByRole('button', { name: 'Options' }).click();
    await check('options');
    await page.getByRole('button', { name: 'Options' }).click();
    if (viewport === NARROW) {
      await page.getByRole('button', { name: 'Commands', exact: true }).click();
      await check('commands');
    }
    await page.getByRole('button', { name: 'Who gets what' }).click();
    await page.locator('.sessions .mine').waitFor();
    await check('who');
    await page.keyboard.press('i');
    await page.locator('dialog[open]').waitFor();
    await check('notices-panel');
    await page.keyboard.press('Escape');
    await page.locator('dialog[open]').waitFor({ state: 'detached' });
    await page.keyboard.press('?');
    await page.locator('dialog[open]').waitFor();
    await check('keys');
    await page.keyboard.press('Escape');
    await page.locator('dialog[open]').waitFor({ state: 'detached' });
    await page.keyboard.press('t');
    await page.locator('.terminal-head').waitFor();
    await page.keyboard.press('x');
    await page.locator('dialog[open]').waitFor();
    await check('end-it');
    expect(findings).toEqual([]);
  });

  it('is used without a pointer: run, look, find, end, go on', async () => {
    const tab = await openWebTab(browser, url(), cluster.token(), { conversation: 'keys' });
    const { page } = tab;
    await page.keyboard.press('n');
    await page.keyboard.type('echo by key; sleep 60');
    await page.keyboard.press('Enter');
    await page.locator('.terminal-place[data-feed="live"]').waitFor();
    await page.keyboard.press('ArrowUp');
    expect(await page.inputValue('#run-text')).toBe('echo by key; sleep 60');
    await page.keyboard.press('ArrowDown');
    expect(await page.inputValue('#run-text')).toBe('');
    await page.keyboard.press('Control+f');
    await page.locator('#run-text').blur();
    await page.keyboard.press('x');
    await page.locator('dialog[open]').waitFor();
    await page.getByLabel('seconds', { exact: false }).first().focus();
    await page.keyboard.press('Enter');
    await page.locator('.facts-state', { hasText: 'ended on request' }).waitFor();
    // Where the focus is can be seen: an outline, not a colour alone.
    await page.locator('#command-list').focus();
    await page.keyboard.press('ArrowDown');
    const outline = await page.locator('#command-list').evaluate((list) => getComputedStyle(list).outlineStyle);
    expect(outline).toBe('solid');
    expect(tab.faults).toEqual([]);
  });

  it('tells of an end in the title and the icon of a tab nobody looks at', async () => {
    const tab = await openWebTab(browser, url(), cluster.token(), { conversation: 'signs' });
    const icon = () => tab.page.locator('link[rel="icon"]').getAttribute('href');
    const quiet = await icon();
    const folder = await mkdtemp(join(tmpdir(), 'homing-signs-'));
    await tab.run(`while ! [ -e ${folder}/go ]; do sleep 0.05; done; exit 1`);
    await tab.page.getByRole('button', { name: 'Who gets what' }).click();
    await writeFile(join(folder, 'go'), '');
    await until('the sign', async () => (await tab.page.title()) === '(1) signs – Homing');
    expect(await icon()).not.toBe(quiet);
    await tab.page.getByRole('button', { name: 'Terminal', exact: true }).click();
    await until('it to go', async () => (await tab.page.title()) === 'signs – Homing');
    await rm(folder, { recursive: true });
  });

  it('[IS1] takes the token out of the address at once and keeps it in the tab', async () => {
    const token = cluster.token();
    const tab = await openWebTab(browser, url(), token, { conversation: 'token' });
    expect(tab.page.url()).toBe(`${url()}/`);
    expect(await tab.page.evaluate(() => JSON.stringify(localStorage))).not.toContain(token);
    expect(await tab.page.evaluate(() => JSON.stringify(sessionStorage))).toContain(token);
    expect(tab.faults).toEqual([]);
  });

  it('[IS1] asks for a token where it has none, and for another where it is refused', async () => {
    const token = cluster.token();
    const tab = await openWebTab(browser, url(), token, { withoutToken: true });
    await tab.page.getByText('A token is needed').waitFor();
    await shotBoth(tab, 'token');
    expect(await axe(tab.page)).toEqual([]);
    await tab.page.getByLabel('Token', { exact: true }).fill('not.a.token');
    await tab.page.keyboard.press('Enter');
    await tab.page.getByRole('button', { name: 'Give a token' }).click();
    await tab.page.getByText('A new token is needed').waitFor();
    await shotBoth(tab, 'token-refused');
    await tab.page.getByLabel('Token', { exact: true }).fill(token);
    await tab.page.keyboard.press('Enter');
    await tab.live();
    expect(tab.faults).toEqual([]);
  });

  it('is served with a strict policy, fresh pages and lasting files, and weighs less than 200 kB', async () => {
    const page = await fetch(`${url()}/`);
    const policy = page.headers.get('content-security-policy') ?? '';
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("script-src 'self'");
    expect(policy).toContain("connect-src 'self'");
    expect(page.headers.get('referrer-policy')).toBe('no-referrer');
    expect(page.headers.get('cache-control')).toBe('no-cache');
    const html = await page.text();
    expect(html).not.toMatch(/<script(?![^>]*\ssrc=)/);
    const script = /src="\.\/(assets\/[^"]+\.js)"/.exec(html)?.[1];
    const file = await fetch(`${url()}/${script}`, { headers: { 'accept-encoding': 'gzip' } });
    expect(file.headers.get('cache-control')).toContain('immutable');
    expect(file.headers.get('content-encoding')).toBe('gzip');
    await file.arrayBuffer();
    expect((await fetch(`${url()}/assets/%2e%2e/%2e%2e/cli/main.js`)).status).toBe(404);

    const folder = fileURLToPath(new URL('../../dist/web/', import.meta.url));
    const gzipped = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.gz'));
    const bytes = gzipped.reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
    expect(bytes).toBeGreaterThan(50_000);
    expect(bytes).toBeLessThan(MAX_APP_BYTES);
  });
});
