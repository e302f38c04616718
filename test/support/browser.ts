/**
 * The web app as its users meet it: the system's Chromium on pages of real nodes. What a terminal holds is read the way a
 * person would take it away, by its Copy button.
 */
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';
import { onTestFinished } from 'vitest';
import type { Cluster } from './cluster.js';
import { NAP } from './programs.js';
import { startTcpProxy, type TcpProxy } from './tcp-proxy.js';
import { DEFAULT_LIMIT_MS } from './wait.js';

const SCREENS = fileURLToPath(new URL('../../.artifacts/screens/', import.meta.url));
const PROGRAMS = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

export const WIDE = { width: 1280, height: 800 };
export const NARROW = { width: 320, height: 640 };

export async function startBrowser(): Promise<Browser> {
  const executablePath = PROGRAMS.find(existsSync);
  if (executablePath === undefined) {
    throw new Error('The browser tests need Chromium: install it with "apt-get install -y chromium" (.ci/run does).');
  }
  if (!existsSync(fileURLToPath(new URL('../../dist/web/index.html', import.meta.url)))) {
    throw new Error('dist/web is missing: run "npm run build" before the browser tests.');
  }
  await mkdir(SCREENS, { recursive: true });
  return chromium.launch({
    executablePath,
    args: [
      '--headless',
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
}

/** What stands before the nodes in production: one address, and behind it the node that is there. */
export interface Balancer extends AsyncDisposable {
  readonly url: string;
  /** New connections go to this node; those to the other one stay until they end. */
  use(node: number): void;
  readonly proxy: TcpProxy;
}

export async function startBalancer(cluster: Cluster, node = 0): Promise<Balancer> {
  const portOf = (index: number) => Number(new URL(cluster.node(index).url).port);
  const target = { port: portOf(node), scheme: 'http' };
  const proxy = await startTcpProxy(target);
  return {
    url: proxy.url,
    proxy,
    use(index) {
      target.port = portOf(index);
    },
    [Symbol.asyncDispose]: () => proxy[Symbol.asyncDispose](),
  };
}

export interface WebTab {
  readonly page: Page;
  /** Runs a script through the box and returns its command's id. */
  run(script: string): Promise<string>;
  /** Shows a command's terminal. */
  open(commandId: string): Promise<void>;
  /** Waits until the open terminal has shown everything up to the command's end. */
  over(): Promise<void>;
  /** Everything in the open terminal, by its Copy button. */
  terminalText(): Promise<string>;
  live(): Promise<void>;
  sessionId(): Promise<string>;
  shot(name: string): Promise<void>;
  /** What went wrong in the page: errors, and requests to anywhere but its own address. */
  readonly faults: readonly string[];
}

export interface WebTabOptions {
  readonly conversation?: string;
  readonly viewport?: { readonly width: number; readonly height: number };
  readonly colorScheme?: 'light' | 'dark';
  /** A browser profile that is there already: a further tab of it. */
  readonly context?: BrowserContext;
  /** A tab that is there already. */
  readonly page?: Page;
  /** Opened without a token. */
  readonly withoutToken?: boolean;
}

/**
 * Pages that earlier tests have done with. A new profile with a new page takes two to three seconds of the processor until it
 * is live, one that has shown the app before a quarter of that.
 */
const free = new WeakMap<Browser, Page[]>();

async function takePage(browser: Browser): Promise<Page> {
  const page = free.get(browser)?.pop() ?? (await (await browser.newContext()).newPage());
  onTestFinished(() => givePage(browser, page));
  return page;
}

/** Back as a new one would be: nothing in it or beside it, and nothing remembered. Where that fails, it is closed. */
async function givePage(browser: Browser, page: Page): Promise<void> {
  const context = page.context();
  try {
    page.removeAllListeners();
    for (const other of context.pages()) if (other !== page) await other.close();
    await context.setOffline(false);
    // Of the same address, without the app, which remembers something when it is left.
    await page.goto(new URL('/livez', page.url()).href);
    await page.evaluate(() => {
      sessionStorage.clear();
      localStorage.clear();
    });
    await context.clearPermissions();
    free.set(browser, [...(free.get(browser) ?? []), page]);
  } catch {
    await context.close();
  }
}

export async function openWebTab(
  browser: Browser,
  url: string,
  token: string,
  options: WebTabOptions = {},
): Promise<WebTab> {
  const { conversation = 'demo', viewport = WIDE, colorScheme = 'light', withoutToken = false } = options;
  const page = options.page ?? (await options.context?.newPage()) ?? (await takePage(browser));
  await page.setViewportSize(viewport);
  await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin: new URL(url).origin });
  // Below the limit of a test, so that a failure names the step.
  page.setDefaultTimeout(DEFAULT_LIMIT_MS);
  const tab = webTab(page, url);
  await page.goto(withoutToken ? url : `${url}/#token=${token}&conversation=${conversation}`);
  if (!withoutToken) await tab.live();
  return tab;
}

export function webTab(page: Page, url: string): WebTab {
  const faults: string[] = [];
  page.on('pageerror', (error) => faults.push(`error: ${error.message}`));
  page.on('request', (request) => {
    const address = request.url();
    if (!address.startsWith(url) && !/^(data|blob):/.test(address)) faults.push(`request to ${address}`);
  });
  const terminal = page.locator('.terminal-place');

  const tab: WebTab = {
    page,
    faults,
    async run(script) {
      const before = await page
        .locator('.row[aria-selected="true"]')
        .getAttribute('data-command', { timeout: 1 })
        .catch(() => null);
      await page.fill('#run-text', script);
      await page.press('#run-text', 'Enter');
      const selected = page.locator(`.row[aria-selected="true"]:not([data-command="${before}"])`);
      return (await selected.getAttribute('data-command')) as string;
    },
    async open(commandId) {
      await page.locator(`.row[data-command="${commandId}"]`).click();
      await terminal.waitFor();
    },
    over: () => page.locator('.terminal-place[data-feed="over"]').waitFor(),
    async terminalText() {
      await page.evaluate(() => navigator.clipboard.writeText(''));
      await page.getByRole('button', { name: 'Copy', exact: true }).click();
      const copied = await page.waitForFunction(() => navigator.clipboard.readText().then((text) => text || null));
      return ((await copied.jsonValue()) as string).replace(/\n+$/, '');
    },
    live: () => page.locator('[data-connection="live"]').waitFor(),
    async sessionId() {
      const title = await page.locator('.top-tools button').first().getAttribute('title');
      return title?.split('session ')[1] ?? '';
    },
    async shot(name) {
      await page.screenshot({ path: join(SCREENS, `${name}.png`) });
    },
  };
  return tab;
}

/** A state of the page at both widths. */
export async function shotBoth(tab: WebTab, name: string): Promise<void> {
  await tab.shot(`${name}-wide`);
  await tab.page.setViewportSize(NARROW);
  await tab.shot(`${name}-narrow`);
  await tab.page.setViewportSize(WIDE);
}

/** `count` numbered lines, one each `everyMs`. */
export const numbered = (word: string, count: number, everyMs = 0): string => {
  const lines = (pause: string) => `i=0; while [ $i -lt ${count} ]; do i=$((i+1)); echo "${word} $i"; ${pause}done`;
  return everyMs === 0 ? lines('') : `bash -c '${NAP}; ${lines(`nap ${everyMs / 1000}; `)}'`;
};

export const numberedText = (word: string, count: number): string =>
  Array.from({ length: count }, (_, i) => `${word} ${i + 1}`).join('\n');
