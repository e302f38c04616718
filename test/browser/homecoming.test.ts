/** The main job in a browser: output is in the page of its owner, complete, and in no other page; a move says why. */
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { numbered, numberedText, openWebTab, shotBoth, startBrowser } from '../support/browser.js';
import { type Cluster, startCluster } from '../support/cluster.js';
import { until } from '../support/wait.js';

describe('two tabs on two nodes', () => {
  let cluster: Cluster;
  let browser: Browser;

  beforeAll(async () => {
    [cluster, browser] = await Promise.all([startCluster({ nodes: 2, workers: 1 }), startBrowser()]);
  });
  afterAll(async () => {
    await browser?.close();
    await cluster?.[Symbol.asyncDispose]();
  });
  const tabAt = (node: number, conversation: string) =>
    openWebTab(browser, cluster.node(node).url, cluster.token(), { conversation });

  it('[OW1, IS2] output of the first tab is complete there and never in the second one’s page', async () => {
    const first = await tabAt(0, 'secrets');
    const second = await tabAt(1, 'secrets');
    const commandId = await first.run(`x=never; ${numbered('$x-elsewhere', 300)}`);
    const own = await second.run(numbered('mine', 20));
    await first.over();
    await second.over();

    await expect.poll(() => first.terminalText()).toBe(numberedText('never-elsewhere', 300));
    await expect.poll(() => second.terminalText()).toBe(numberedText('mine', 20));
    // The second page knows that the command exists, and whose it is, but nothing of its output.
    const row = second.page.locator(`.row[data-command="${commandId}"]`);
    await until('the command in the list of the second tab', async () =>
      (await row.textContent())?.includes('exited 0'),
    );
    expect(await row.textContent()).toContain(`tab ${(await first.sessionId()).slice(-4)}`);
    expect(await second.page.content()).not.toContain('never-elsewhere');
    expect(await first.page.content()).not.toContain('mine 20');
    expect(own).not.toBe(commandId);
    // Twin: looked at on purpose it is there, and this test would have seen it.
    await second.open(commandId);
    await second.over();
    await expect.poll(() => second.page.content()).toContain('never-elsewhere 300');
    expect([...first.faults, ...second.faults]).toEqual([]);
    for (const node of [0, 1]) expect(await cluster.metric(node, 'homing_misdelivered_total')).toBe(0);
  });

  it('[OW2] a tab that closes its session hands its command to the other tab, which says why', async () => {
    const first = await tabAt(0, 'moving');
    const commandId = await first.run(`${numbered('before', 5)}; sleep 60`);
    const second = await tabAt(1, 'moving');
    await first.page.locator('.terminal-place[data-feed="live"]').waitFor();

    await first.page.locator('.top-tools button').first().click();
    await shotBoth(first, 'close-session');
    await first.page.getByRole('button', { name: 'Close the session' }).click();
    await first.page.locator('.over[data-cause="closed"]').waitFor();
    await shotBoth(first, 'closed');

    const row = second.page.locator(`.row[data-command="${commandId}"]`);
    await until('the move', async () => (await row.textContent())?.includes('from tab'));
    await second.page.locator('[data-key="i"]').click();
    await second.page.getByText('came to this tab: the tab that had it was closed').waitFor();
    await shotBoth(second, 'notices');
    await second.page.keyboard.press('Escape');
    await second.open(commandId);
    await second.page.locator('.facts-moved', { hasText: 'the tab that had it was closed' }).waitFor();
    await until('its output', async () => (await second.terminalText()) === numberedText('before', 5));
    await shotBoth(second, 'moved');
    await second.page.keyboard.press('w');
    await second.page.locator('.who-table tr.mine', { hasText: 'the tab that had it was closed' }).waitFor();
    await shotBoth(second, 'who-gets-what');
    expect(await second.page.title()).toContain('moving');
  });

  it('[OW4, OW11] a command that belongs to nobody is shown as such and adopted by hand', async () => {
    const starter = await cluster.tab(0, { conversation: 'kept' });
    const commandId = await starter.run({ script: `${numbered('kept', 3)}; sleep 60`, onOwnerGone: 'park' });
    await until('its output', () => starter.output(commandId).includes('kept 3'));
    await starter.rpc('session.close', {});

    const tab = await tabAt(1, 'kept');
    await tab.page.getByRole('button', { name: /Nobody/ }).click();
    await tab.open(commandId);
    await tab.page.locator('.facts-moved', { hasText: 'Nobody’s' }).waitFor();
    await shotBoth(tab, 'nobodys');
    await tab.page.getByRole('button', { name: 'Adopt' }).click();
    await tab.page.locator('.facts-moved', { hasText: 'taken over by hand' }).waitFor();
    await until('its output', async () => (await tab.terminalText()) === numberedText('kept', 3));

    // Ending it shows each stage until it is over.
    await tab.page.getByRole('button', { name: 'All' }).click();
    await tab.page.keyboard.press('x');
    await shotBoth(tab, 'kill-asks');
    await tab.page.getByRole('button', { name: 'End the command' }).click();
    await tab.page.locator('.facts-state', { hasText: 'ended on request' }).waitFor();
    await tab.over();
  });

  it('takes input: lines for a pipe, keys for a terminal of its own', async () => {
    const tab = await tabAt(0, 'input');
    await tab.page.getByRole('button', { name: 'Options' }).click();
    await tab.page.getByLabel('Takes input').check();
    await tab.run('while read -r line; do echo "got $line"; done; echo no more');
    await tab.page.getByLabel('Input line').fill('one');
    await tab.page.keyboard.press('Enter');
    await until('the answer', async () => (await tab.terminalText()) === 'got one');
    await shotBoth(tab, 'input');
    await tab.page.getByRole('button', { name: 'End of input' }).click();
    await tab.over();
    await expect.poll(() => tab.terminalText()).toBe('got one\nno more');

    await tab.page.getByLabel('A terminal of its own').check();
    await tab.run('stty size; read -r word; echo "word: $word"; sleep 60');
    await until('its size', async () => /^\d+ \d+$/.test(await tab.terminalText()));
    await tab.page.locator('.xterm-helper-textarea').focus();
    await tab.page.keyboard.type('typed');
    await tab.page.keyboard.press('Enter');
    await until('what was typed', async () => (await tab.terminalText()).endsWith('word: typed'));
    // The way out of a terminal that takes Tab for itself.
    await tab.page.locator('.xterm-helper-textarea').focus();
    await tab.page.keyboard.press('Shift+Escape');
    expect(await tab.page.evaluate(() => document.activeElement?.tagName)).toBe('MAIN');
    expect(tab.faults).toEqual([]);
  });

  it('[IS1] each conversation of a page has a session and commands of its own', async () => {
    const tab = await tabAt(0, 'one');
    const inOne = await tab.run('echo only in one');
    await tab.over();
    const sessionOfOne = await tab.sessionId();
    await tab.page.getByRole('button', { name: 'Open a conversation' }).click();
    await tab.page.getByLabel('Name').fill('two');
    await tab.page.getByRole('button', { name: 'Open', exact: true }).click();
    await tab.page.locator('[data-conversation="two"] [data-connection="live"]').waitFor();
    await tab.page.getByText('No commands yet').waitFor();
    await shotBoth(tab, 'empty');
    expect(await tab.sessionId()).not.toBe(sessionOfOne);
    expect(await tab.page.locator(`.row[data-command="${inOne}"]`).count()).toBe(0);
    await tab.page.keyboard.press('Alt+1');
    await tab.page.locator(`.row[data-command="${inOne}"]`).waitFor();
    expect(await tab.sessionId()).toBe(sessionOfOne);
  });
});
