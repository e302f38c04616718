/** The automatic look for what keeps people out of a page. */
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';

const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

let source: Promise<string> | undefined;

/** Every finding as a sentence. */
export async function axe(page: Page): Promise<string[]> {
  source ??= readFile(AXE, 'utf8');
  // Through the debugger, not as a script of the page: the policy of the page stays as it is.
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(await source);
  return page.evaluate(async () => {
    const { axe } = globalThis as unknown as { axe: { run(options: object): Promise<{ violations: Violation[] }> } };
    interface Violation {
      readonly id: string;
      readonly help: string;
      readonly nodes: readonly { readonly target: readonly unknown[] }[];
    }
    const { violations } = await axe.run({ resultTypes: ['violations'] });
    return violations.map(
      ({ id, help, nodes }) => `${id}: ${help} (${nodes.map(({ target }) => target.join(' ')).join(', ')})`,
    );
  });
}
