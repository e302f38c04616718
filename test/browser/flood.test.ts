/** Much output: the page keeps answering while it comes, and what is left out is said where it is missing. */
import { setTimeout } from 'node:timers/promises';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openWebTab, shotBoth, startBrowser } from '../support/browser.js';
import { type Cluster, startCluster } from '../support/cluster.js';
import { measurePageWork } from '../support/page-work.js';

const MIB = 1024 * 1024;
/** What the page itself may take of the processor: for a task, and from a key to the frame that shows it for three keys of four: a
 * second of the processor is worth half as much on a host of half the speed. All figures are printed. */
const WORK_LIMIT_MS = 100;
/** So that one in twenty is one. */
const MIN_KEYS = 20;
/** Of 101 bytes each. */
const FEW_LINES = 2_000;

describe('floods', () => {
  let cluster: Cluster;
  let browser: Browser;

  beforeAll(async () => {
    // All of it is to reach the page: nothing is left out on the way.
    const env = { HOMING_OUTPUT_BYTES_PER_SEC: String(256 * MIB), HOMING_SPOOL_BYTES: String(128 * MIB) };
    [cluster, browser] = await Promise.all([startCluster({ nodes: 1, workers: 1, env }), startBrowser()]);
  });
  afterAll(async () => {
    await browser?.close();
    await cluster?.[Symbol.asyncDispose]();
  });

  it('what a command prints comes once to the page that ran it: its terminal need not read it again', async () => {
    const context = await browser.newContext();
    const asked: string[] = [];
    context.on('page', (page) =>
      page.on('websocket', (socket) => socket.on('framesent', ({ payload }) => void asked.push(String(payload)))),
    );
    const tab = await openWebTab(browser, cluster.node(0).url, cluster.token(), { conversation: 'once', context });
    const commandId = await tab.run(`seq -f %0100.0f ${FEW_LINES}; echo the end`);
    await tab.over();
    await tab.page.locator('.xterm-rows', { hasText: 'the end' }).waitFor();
    const text = await tab.terminalText();
    expect(text.split('\n')).toHaveLength(FEW_LINES + 1);
    expect(asked.filter((frame) => frame.includes('command.log'))).toEqual([]);
    // From the log, as always, where it is not fresh.
    await tab.page.reload();
    await tab.over();
    await expect.poll(() => tab.terminalText()).toBe(text);
    expect(asked.some((frame) => frame.includes('command.log') && frame.includes(commandId))).toBe(true);
    await context.close();
  });

  it('[CO7, DE5] 50 MB of output: each task of the page, and its own work from a key to the paint for three keys of four, is under 100 ms; gaps are said', async () => {
    const tab = await openWebTab(browser, cluster.node(0).url, cluster.token());
    await tab.run(`seq -f '%0100.0f' 500000; echo the end`);
    await tab.page.focus('#run-text');
    const over = tab.page.locator('.row-state', { hasText: 'exited' });
    const { longestTaskMs, keys } = await measurePageWork(browser, tab.page, async () => {
      let count = 0;
      for (; count % 10 !== 0 || (await over.count()) === 0; count += 1) {
        await tab.page.keyboard.press('x');
        await setTimeout(20);
      }
      return count;
    });
    const own = keys.map(({ ownMs }) => ownMs);
    const clock = keys.map(({ clockMs }) => clockMs).sort((a, b) => a - b);
    const at = (sorted: readonly number[], share: number) => sorted[Math.floor((sorted.length - 1) * share)] ?? 0;
    const told = (sorted: readonly number[]) =>
      `median ${at(sorted, 0.5).toFixed(0)}, 95 % ${at(sorted, 0.95).toFixed(0)}, worst ${at(sorted, 1).toFixed(0)}`;
    console.log(
      `key to paint while 50 MB came, ms, ${keys.length} keys: work of the page ${told(own)}; by the clock ${told(clock)}; longest task ${longestTaskMs.toFixed(0)}`,
    );
    expect(longestTaskMs).toBeLessThan(WORK_LIMIT_MS);
    expect(at(own, 0.75)).toBeLessThan(WORK_LIMIT_MS);
    expect(keys.length).toBeGreaterThanOrEqual(MIN_KEYS);
    await tab.page.fill('#run-text', '');
    await tab.over();
    expect(await tab.page.locator('.facts-state').textContent()).toBe('exited 0');
    await tab.page.locator('.xterm-rows', { hasText: 'the end' }).waitFor();

    // A new page reads the log, which holds the first and the last part, and says at its place what is not there any more.
    await tab.page.reload();
    await tab.over();
    await tab.page.locator('.xterm-rows', { hasText: 'the end' }).waitFor();
    const text = await tab.terminalText();
    const [before = '', after = ''] = text.split(/ ⋯ [\d,]+ bytes no longer kept: .* ⋯/);
    expect(before.startsWith(`${'1'.padStart(100, '0')}\n${'2'.padStart(100, '0')}\n`)).toBe(true);
    expect(after.endsWith('the end')).toBe(true);
    expect(tab.faults).toEqual([]);
    await tab.page.getByRole('button', { name: 'Find in the output' }).click();
    await tab.page.getByRole('searchbox', { name: 'Find in the output' }).fill('no longer kept');
    await tab.page.locator('.find-count', { hasText: '1 of 1' }).waitFor();
    await shotBoth(tab, 'gap');
  }, 120_000);
});
