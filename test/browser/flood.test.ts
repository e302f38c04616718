/** Much output: the page keeps answering while it comes, and what is left out is said where it is missing. */
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openWebTab, shotBoth, startBrowser } from '../support/browser.js';
import { type Cluster, startCluster } from '../support/cluster.js';

const MIB = 1024 * 1024;
/** From a key to the frame that shows it. */
const ANSWER_LIMIT_MS = 100;

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
    const commandId = await tab.run('seq -f %0100.0f 10000; echo the end');
    await tab.over();
    await tab.page.locator('.xterm-rows', { hasText: 'the end' }).waitFor();
    const text = await tab.terminalText();
    expect(text.split('\n')).toHaveLength(10_001);
    expect(asked.filter((frame) => frame.includes('command.log'))).toEqual([]);
    // From the log, as always, where it is not fresh.
    await tab.page.reload();
    await tab.over();
    await expect.poll(() => tab.terminalText()).toBe(text);
    expect(asked.some((frame) => frame.includes('command.log') && frame.includes(commandId))).toBe(true);
    await context.close();
  });

  it('[CO7, DE5] 50 MB of output: three keys of four are painted in under 100 ms while they come; gaps are said', async () => {
    const tab = await openWebTab(browser, cluster.node(0).url, cluster.token());
    await tab.run(`seq -f '%0100.0f' 500000; echo the end`);
    const answersMs: number[] = [];
    const over = tab.page.locator('.row-state', { hasText: 'exited' });
    while ((await over.count()) === 0) {
      answersMs.push(await tab.page.evaluate(answerMs));
    }
    answersMs.sort((a, b) => a - b);
    const at = (share: number) => answersMs[Math.floor((answersMs.length - 1) * share)] ?? 0;
    console.log(
      `key to paint while 50 MB came, ms: median ${at(0.5).toFixed(0)}, 95 % ${at(0.95).toFixed(0)}, worst ${at(1).toFixed(0)} of ${answersMs.length}`,
    );
    await tab.over();
    expect(await tab.page.locator('.facts-state').textContent()).toBe('exited 0');
    await tab.page.locator('.xterm-rows', { hasText: 'the end' }).waitFor();
    expect(answersMs.length).toBeGreaterThan(10);
    expect(at(0.75)).toBeLessThan(ANSWER_LIMIT_MS);

    // A new page reads the log, which holds the first and the last part, and says at its place what is not there any more.
    await tab.page.reload();
    await tab.over();
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

/** In the page: types a character into the box and waits for the frame after the one in which it was handled. */
function answerMs(): Promise<number> {
  const box = document.querySelector<HTMLTextAreaElement>('#run-text');
  if (box === null) return Promise.resolve(Number.POSITIVE_INFINITY);
  return new Promise((resolve) => {
    const startMs = performance.now();
    // As a key does: it waits its turn behind what the page is busy with.
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
      box.value = box.value.length > 20 ? '' : `${box.value}x`;
      box.dispatchEvent(new InputEvent('input', { bubbles: true }));
      requestAnimationFrame(() => {
        const painted = new MessageChannel();
        painted.port1.onmessage = () => resolve(performance.now() - startMs);
        painted.port2.postMessage(0);
      });
    };
    channel.port2.postMessage(0);
  });
}
